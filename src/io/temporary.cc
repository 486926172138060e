#include "io/temporary.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "kvring/error.h"

namespace kvring {

namespace fs = std::filesystem;

std::string resolve_target(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) throw InvalidArgument(fmt::format("{}: is a directory; name a file", path));
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw InvalidArgument(fmt::format("{}: is a device or pipe; name a regular file", path));
  const fs::path target = fs::exists(status) ? fs::canonical(path, error) : fs::path(path);
  const fs::path directory = target.parent_path();
  if (!directory.empty() && !fs::is_directory(directory, error))
    throw InvalidArgument(
        fmt::format("{}: directory {} does not exist; create it first", path, directory.string()));
  return target.empty() ? path : target.string();
}

FileHandle create_temporary(const std::string& path, const fs::path& target, std::string& temp_path) {
  std::random_device random;
  constexpr std::size_t kLongestStem = 200;  // file systems allow names of 255 bytes
  const std::string stem = target.filename().string().substr(0, kLongestStem);
  for (;;) {
    temp_path = (target.parent_path() / fmt::format(".{}.kvring-{:08x}.tmp", stem, random())).string();
    FileHandle file(::open(temp_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() >= 0) return file;
    if (errno == EEXIST || errno == EINTR) continue;
    const std::string message =
        fmt::format("{}: cannot create a file in its directory: {}", path, errno_text(errno));
    if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOTDIR || errno == ENOENT)
      throw InvalidArgument(message);
    throw InputFile(message);
  }
}

bool sync_and_close(FileHandle& file) {
  int result = 0;
  do {
    result = ::fsync(file.get());
  } while (result != 0 && errno == EINTR);
  return result == 0 && ::close(file.release()) == 0;
}

}  // namespace kvring
