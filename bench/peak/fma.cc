#include <cstddef>

#include "peak/peak.h"
#include "peak/rate.h"

#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peak/fma.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: more than two ports times four cycles of latency, few enough for 16 registers. Returns what
// they add up to, so that they are computed.
float multiply_add_chains(std::size_t rounds, std::size_t* lanes) {
  const hn::CappedTag<float, 16> f32;
  *lanes = hn::Lanes(f32);
  const auto a = hn::Set(f32, 0.999f), b = hn::Set(f32, 0.001f);
  hn::Vec<decltype(f32)> c[12];
  for (int i = 0; i < 12; ++i) c[i] = hn::Set(f32, 0.1f * static_cast<float>(i));
  for (std::size_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) c[i] = hn::MulAdd(c[i], a, b);
  }
  for (int i = 1; i < 12; ++i) c[0] = hn::Add(c[0], c[i]);
  return hn::GetLane(c[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvring {
HWY_EXPORT(multiply_add_chains);

double fma_peak_gflops() {
  constexpr std::size_t kRounds = 200000;
  std::size_t lanes = 0;
  volatile float sink = HWY_DYNAMIC_DISPATCH(multiply_add_chains)(1, &lanes);
  return best_gflops(2.0 * 12.0 * static_cast<double>(kRounds * lanes),
                     [&] { sink = HWY_DYNAMIC_DISPATCH(multiply_add_chains)(kRounds, &lanes); });
}
}  // namespace kvring
#endif
