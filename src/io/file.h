// Whole transfers on a file descriptor at 64-bit offsets.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

namespace kvring {

// Owns a file descriptor.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) noexcept : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int get() const noexcept { return fd_; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

// "No space left on device".
std::string errno_text(int error);

// Repeats `op(position, bytes)`, a pread or pwrite of the part that is left, until all bytes have moved.
// Returns how many did: fewer when op returned 0 (end of file) or failed with anything but EINTR, which is
// then still in errno.
template <typename Op>
std::int64_t transfer_all(Op op, std::int64_t bytes) {
  std::int64_t done = 0;
  errno = 0;
  while (done < bytes) {
    const std::int64_t moved = op(done, bytes - done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) break;
    done += moved;
  }
  return done;
}

// Read or write exactly `bytes` at `offset`. Throw InputFile naming the path, the offset and the cause
// (for a read also a file that ends early). Safe to call from several threads on one descriptor.
void read_exactly(const FileHandle& file, const std::string& path, void* dst, std::int64_t bytes,
                  std::int64_t offset);
void write_exactly(const FileHandle& file, const std::string& path, const void* src, std::int64_t bytes,
                   std::int64_t offset);

}  // namespace kvring
