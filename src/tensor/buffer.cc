#include "tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace kvring {
namespace {

// Workspaces are new memory in most calls, and of many megabytes: taken page by page of 4 KiB, they cost a
// short call as much as its arithmetic.
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::byte* allocate(std::int64_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  const std::int64_t alignment = huge ? kHugePage : static_cast<std::int64_t>(kAlignment);
  const auto size = static_cast<std::size_t>(round_up(bytes, alignment));
  void* const memory = std::aligned_alloc(static_cast<std::size_t>(alignment), size);
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: kernels without huge pages refuse it.
  if (huge) ::madvise(memory, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t bytes)
    : data_(allocate(std::max<std::int64_t>(bytes, 1))), bytes_(bytes) {}

}  // namespace kvring
