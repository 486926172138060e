#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "peak/peak.h"
#include "peak/rate.h"

#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peak/read.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads `streams` equal parts side by side; which number is fastest differs from machine to machine. Returns
// what the words add up to, so that they are read.
std::uint64_t read_streams(const std::uint64_t* data, std::size_t words, std::size_t streams) {
  constexpr std::size_t kLine = 8;     // words
  constexpr std::size_t kAhead = 512;  // 4 KiB
  const hn::CappedTag<std::uint64_t, kLine> u64;
  const std::size_t lanes = hn::Lanes(u64);
  const std::size_t part = words / streams / kLine * kLine;
  auto sum = hn::Zero(u64);
  for (std::size_t i = 0; i < part; i += kLine) {
    for (std::size_t s = 0; s < streams; ++s) {
      const std::uint64_t* line = data + s * part + i;
      hwy::Prefetch(line + kAhead);
      for (std::size_t w = 0; w < kLine; w += lanes) sum = hn::Add(sum, hn::LoadU(u64, line + w));
    }
  }
  return hn::GetLane(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvring {
HWY_EXPORT(read_streams);

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Waiting for memory is the thread's own time; only threads that wait for each other need the wall's.
double seconds(int threads) {
  if (threads == 1) return thread_seconds();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ReadBandwidth::ReadBandwidth(std::int64_t bytes)
    : data_(static_cast<std::byte*>(
          ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{kHugePage}))),
      bytes_(bytes) {
  // Walking page tables must not be what is measured.
  ::madvise(data_.get(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  std::memset(data_.get(), 1, static_cast<std::size_t>(bytes));
}

void ReadBandwidth::Free::operator()(std::byte* p) const noexcept {
  ::operator delete (p, std::align_val_t{kHugePage});
}

double ReadBandwidth::gbytes_per_s(int threads) const {
  constexpr int kTries = 3;
  constexpr std::size_t kStreams[] = {1, 2, 4};
  const std::size_t words = static_cast<std::size_t>(bytes_) / 8 / static_cast<std::size_t>(threads);
  double best = 0;
  double start = 0;
  std::barrier together(threads);
  const auto read = [&](int thread) {
    const auto* part =
        reinterpret_cast<const std::uint64_t*>(data_.get()) + words * static_cast<std::size_t>(thread);
    [[maybe_unused]] volatile std::uint64_t sink = 0;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      for (const std::size_t streams : kStreams) {
        together.arrive_and_wait();
        if (thread == 0) start = seconds(threads);
        sink = HWY_DYNAMIC_DISPATCH(read_streams)(part, words, streams);
        together.arrive_and_wait();
        if (thread == 0)
          best = std::max(best, static_cast<double>(bytes_) / (seconds(threads) - start) * 1e-9);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(read, t);
    read(0);
  }
  return best;
}

}  // namespace kvring
#endif
