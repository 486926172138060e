#include "io/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "kvring/error.h"

namespace kvring {

static_assert(sizeof(off_t) == 8, "files past 2 GiB need 64-bit offsets");

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

std::string errno_text(int error) { return std::generic_category().message(error); }

void read_exactly(const FileHandle& file, const std::string& path, void* dst, std::int64_t bytes,
                  std::int64_t offset) {
  const std::int64_t done = transfer_all(
      [&](std::int64_t at, std::int64_t left) -> std::int64_t {
        return ::pread(file.get(), static_cast<char*>(dst) + at, static_cast<std::size_t>(left), offset + at);
      },
      bytes);
  if (done == bytes) return;
  if (errno != 0)
    throw InputFile(fmt::format("{}: cannot read {} bytes at offset {}: {}", path, bytes - done,
                                offset + done, errno_text(errno)));
  throw InputFile(fmt::format("{}: ends before byte {} (truncated while being read?)", path, offset + bytes));
}

void write_exactly(const FileHandle& file, const std::string& path, const void* src, std::int64_t bytes,
                   std::int64_t offset) {
  const std::int64_t done = transfer_all(
      [&](std::int64_t at, std::int64_t left) -> std::int64_t {
        return ::pwrite(file.get(), static_cast<const char*>(src) + at, static_cast<std::size_t>(left),
                        offset + at);
      },
      bytes);
  if (done == bytes) return;
  throw InputFile(fmt::format("{}: cannot write {} bytes at offset {}: {}", path, bytes - done, offset + done,
                              errno == 0 ? "the file system took nothing" : errno_text(errno)));
}

}  // namespace kvring
