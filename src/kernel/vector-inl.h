// Vectors of query rows, and the functions of one element, per target.
#if defined(KVRING_KERNEL_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_VECTOR_INL_H_
#undef KVRING_KERNEL_VECTOR_INL_H_
#else
#define KVRING_KERNEL_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <type_traits>

#include "kernel/bins.h"
#include "kernel/tile.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using F64 = hn::CappedTag<double, 8>;
using VF = hn::Vec<F32>;
using VD = hn::Vec<F64>;
// No target here has vectors of unknown length.
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kLanes64 = static_cast<int>(hn::MaxLanes(F64()));

// Register tiles are half as high where there are 16 vector registers, not 32.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
constexpr bool kSixteenRegisters = true;
#else
constexpr bool kSixteenRegisters = false;
#endif

HWY_INLINE VF fused(VF a, VF b, VF c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE2 || \
    HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
  // No fused instruction on this target: libm's exact one, lane by lane.
  const F32 f32;
  alignas(64) float x[16], y[16], z[16];
  hn::Store(a, f32, x);
  hn::Store(b, f32, y);
  hn::Store(c, f32, z);
  for (std::size_t i = 0; i < hn::Lanes(f32); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(f32, z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// 2^f for |f| <= 1/2; exactly 1 at 0. Relative error 2^-22. Coefficients: tools/exp2_coefficients.py.
HWY_INLINE VF exp2_of_fraction(VF f) {
  const F32 f32;
  VF p = hn::Set(f32, 0x1.5bba16p-10f);
  p = fused(p, f, hn::Set(f32, 0x1.3cea88p-7f));
  p = fused(p, f, hn::Set(f32, 0x1.c6b752p-5f));
  p = fused(p, f, hn::Set(f32, 0x1.ebf9bcp-3f));
  p = fused(p, f, hn::Set(f32, 0x1.62e42ap-1f));
  return fused(p, f, hn::Set(f32, 1.0f));
}

// 2^t for t <= 0, 0 where t is below `lowest` >= -126; NaN stays NaN. With n the whole number nearest to t,
// ties to even, it is 2^n * 2^(t - n).
HWY_INLINE VF exp2_nonpositive(VF t, float lowest) {
  const F32 f32;
#if HWY_TARGET == HWY_AVX3
  const __mmask16 kept = _mm512_cmp_ps_mask(t.raw, _mm512_set1_ps(lowest), _CMP_NLT_UQ);
  const VF f{_mm512_reduce_ps(t.raw, _MM_FROUND_TO_NEAREST_INT)};
  return VF{_mm512_maskz_scalef_ps(kept, exp2_of_fraction(f).raw, hn::Sub(t, f).raw)};
#else
  // Adding 1.5 * 2^23 rounds t to n and leaves it in the low bits.
  const VF magic = hn::Set(f32, 12582912.0f);
  const VF shifted = hn::Add(t, magic);
  const VF p = exp2_of_fraction(hn::Sub(t, hn::Sub(shifted, magic)));
  const hn::RebindToSigned<F32> i32;
  const auto biased = hn::Add(hn::BitCast(i32, shifted), hn::Set(i32, 127));
  const VF power = hn::BitCast(f32, hn::ShiftLeft<23>(biased));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(f32, lowest)), hn::Mul(p, power));
#endif
}

// Bits of a weight p whose upper half is the bfloat16 nearest to p, ties away from 0. What becomes of NaN
// does not matter: the row's sum of weights has it.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F32>> bf16_bits(VF p) {
  const hn::RebindToUnsigned<F32> u32;
  return hn::Add(hn::BitCast(u32, p), hn::Set(u32, 0x8000u));
}

// tanh: its Taylor series near 0, where 1 - e^-2|x| would cancel; relative error 2^-21.
HWY_INLINE VF tanh_f32(VF x) {
  const F32 f32;
  const VF a = hn::Abs(x);
  const VF e = exp2_nonpositive(hn::Mul(a, hn::Set(f32, -2.8853900817779268f)), kLowestWeight);
  const VF one = hn::Set(f32, 1.0f);
  const VF large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  const VF x2 = hn::Mul(x, x);
  VF series = hn::Set(f32, 21844.0f / 6081075.0f);
  series = fused(series, x2, hn::Set(f32, -1382.0f / 155925.0f));
  series = fused(series, x2, hn::Set(f32, 62.0f / 2835.0f));
  series = fused(series, x2, hn::Set(f32, -17.0f / 315.0f));
  series = fused(series, x2, hn::Set(f32, 2.0f / 15.0f));
  series = fused(series, x2, hn::Set(f32, -1.0f / 3.0f));
  const VF small = fused(hn::Mul(series, x2), x, x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(f32, 0.4f)), small, large);
}

// Calls f(vectors, lane) for the lanes of `rows` query rows: three vectors at a time, then what is left.
template <class F>
HWY_INLINE void for_lanes(int rows, const F& f) {
  int lane = 0;
  for (; lane + 2 * kLanes < rows; lane += 3 * kLanes) f(std::integral_constant<int, 3>(), lane);
  if (lane + kLanes < rows) {
    f(std::integral_constant<int, 2>(), lane);
  } else if (lane < rows) {
    f(std::integral_constant<int, 1>(), lane);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
