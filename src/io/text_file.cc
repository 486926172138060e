#include "io/text_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "io/file.h"
#include "kvring/error.h"

namespace kvring {
namespace {

// What mkstemp() makes is for its owner alone.
::mode_t usual_mode() {
  const ::mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

void write_text_file(const std::string& path, std::string_view text) {
  if (std::filesystem::is_directory(path))
    throw InputFile(fmt::format("{}: is a directory; name a file", path));
  std::string temporary = path + ".XXXXXX";
  const FileHandle file(::mkstemp(temporary.data()));
  if (file.get() < 0) throw InputFile(fmt::format("{}: cannot be written: {}", path, errno_text(errno)));
  try {
    write_exactly(file, path, text.data(), static_cast<std::int64_t>(text.size()), 0);
    if (::fchmod(file.get(), usual_mode()) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0)
      throw InputFile(fmt::format("{}: cannot be written: {}", path, errno_text(errno)));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace kvring
