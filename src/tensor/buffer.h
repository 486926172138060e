// Owned, cache-line aligned memory. Contents start undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kvring {

inline constexpr std::size_t kAlignment = 64;

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct AlignedDelete {
  std::align_val_t alignment{kAlignment};
  void operator()(std::byte* p) const noexcept { ::operator delete(p, alignment); }
};

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc.
  explicit AlignedBuffer(std::int64_t bytes);

  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<std::byte, AlignedDelete> data_;
  std::int64_t bytes_ = 0;
};

}  // namespace kvring
