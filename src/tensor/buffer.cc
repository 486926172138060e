#include "tensor/buffer.h"

#include <sys/mman.h>

namespace kvring {
namespace {

// Workspaces are new memory in a program's first call, and of many megabytes: taken in pages of 4 KiB they
// made calls of a few thousand tokens some per cent longer.
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t bytes) : bytes_(bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  const auto alignment = huge ? static_cast<std::size_t>(kHugePage) : kAlignment;
  const auto size = static_cast<std::size_t>(round_up(bytes, static_cast<std::int64_t>(alignment)));
  const std::align_val_t aligned{alignment};
  data_ = decltype(data_){static_cast<std::byte*>(::operator new(size, aligned)), AlignedDelete{aligned}};
  // Advice only: kernels without huge pages refuse it.
  if (huge) ::madvise(data_.get(), size, MADV_HUGEPAGE);
}

}  // namespace kvring
