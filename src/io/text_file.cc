#include "io/text_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "io/temporary.h"
#include "kvring/error.h"

namespace kvring {
namespace {

constexpr std::size_t kTextBytes = std::size_t{1} << 16;  // so that a system call costs nothing beside it

}  // namespace

TextFile::TextFile(const std::string& path)
    : path_(path), target_(resolve_target(path)), file_(create_temporary(path, target_, temp_path_)) {}

TextFile::~TextFile() {
  if (!committed_) ::unlink(temp_path_.c_str());
}

void TextFile::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kTextBytes) flush();
}

void TextFile::flush() {
  const auto count = static_cast<std::int64_t>(buffer_.size());
  write_exactly(file_, path_, buffer_.data(), count, bytes_);
  bytes_ += count;
  buffer_.clear();
}

void TextFile::commit() {
  flush();
  if (!sync_and_close(file_) || std::rename(temp_path_.c_str(), target_.c_str()) != 0)
    throw InputFile(fmt::format("{}: cannot finish the {} bytes: {}", path_, bytes_, errno_text(errno)));
  committed_ = true;
}

void write_text_file(const std::string& path, std::string_view text) {
  TextFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace kvring
