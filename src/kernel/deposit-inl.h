// How a tile's partial joins the accumulators of a panel, per target.
#if defined(KVRING_KERNEL_DEPOSIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_DEPOSIT_INL_H_
#undef KVRING_KERNEL_DEPOSIT_INL_H_
#else
#define KVRING_KERNEL_DEPOSIT_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/bins.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// Terms that call for a higher bin than their sum has, and terms that are not finite: the rules are those of
// BinnedSum::add. Returns what is left to be added.
HWY_NOINLINE inline VD raise_bins(VD x, double* HWY_RESTRICT hi_at, double* HWY_RESTRICT lo_at) {
  const F64 f64;
  const hn::RebindToUnsigned<F64> u64;
  VD hi = hn::Load(f64, hi_at);
  VD lo = hn::Load(f64, lo_at);
  const auto half_bit = hn::Set(u64, kHalfBit);
  const auto part_bits = hn::And(hn::BitCast(u64, hi), hn::Set(u64, kExponentBits));
  const VD part = hn::BitCast(f64, part_bits);
  const VD prime = hn::BitCast(f64, hn::Or(part_bits, half_bit));
  const VD infinity = hn::Set(f64, std::numeric_limits<double>::infinity());
  const auto finite = hn::Lt(hn::Abs(x), infinity);
  lo = hn::IfThenElse(finite, lo, hn::Add(lo, x));
  x = hn::IfThenElseZero(finite, x);
  // From the exponent of x to that of the units of its bin: b = ceil((e + 1) / 32), 2^(52 + 32 (b - 1)), all
  // biased.
  const auto exponent = hn::ShiftRight<52>(hn::BitCast(u64, hn::Abs(x)));
  const auto bin = hn::ShiftRight<5>(hn::Add(exponent, hn::Set(u64, std::uint64_t{1058})));
  const auto to_bits = hn::ShiftLeft<52>(hn::Sub(hn::ShiftLeft<5>(bin), hn::Set(u64, std::uint64_t{1005})));
  const VD to = hn::BitCast(f64, to_bits);
  const auto raised = hn::Gt(to, part);
  const auto by_one = hn::Eq(hn::Mul(to, hn::Set(f64, kBinRatio)), part);
  const VD moved = hn::IfThenElseZero(by_one, hn::Sub(hi, prime));
  lo = hn::IfThenElse(hn::And(raised, hn::Lt(hn::Abs(lo), infinity)), moved, lo);
  hn::Store(hn::IfThenElse(raised, hn::BitCast(f64, hn::Or(to_bits, half_bit)), hi), f64, hi_at);
  hn::Store(lo, f64, lo_at);
  return x;
}

// Adds x * scale, a power of two, to one vector of (hi, lo) of BinnedSum; see include/kvring/partial.h for
// the rules and src/kernel/partial.cc for the scalar twin. `fits` is half the limit of a bin divided by
// scale.
HWY_INLINE void binned_add(VD x, VD scale, VD fits, double* HWY_RESTRICT hi_at, double* HWY_RESTRICT lo_at) {
  const F64 f64;
  const hn::RebindToUnsigned<F64> u64;
  const auto prime_of = [&](VD sum) {
    return hn::BitCast(f64,
                       hn::OrAnd(hn::Set(u64, kHalfBit), hn::BitCast(u64, sum), hn::Set(u64, kExponentBits)));
  };
  VD prime = prime_of(hn::Load(f64, hi_at));
  // The prime is 1.5 times the exponent part: below half the limit of that, x fits for sure.
  if (HWY_UNLIKELY(!hn::AllTrue(f64, hn::Lt(hn::Abs(x), hn::Mul(prime, fits))))) {
    x = raise_bins(hn::Mul(x, scale), hi_at, lo_at);
    scale = hn::Set(f64, 1.0);
    prime = prime_of(hn::Load(f64, hi_at));
  }
  const VD high = hn::Sub(hn::MulAdd(x, scale, prime), prime);
  const VD low_prime = hn::Mul(prime, hn::Set(f64, kBinRatio));
  const VD low = hn::Sub(hn::Add(hn::MulSub(x, scale, high), low_prime), low_prime);
  hn::Store(hn::Add(hn::Load(f64, hi_at), high), f64, hi_at);
  hn::Store(hn::Add(hn::Load(f64, lo_at), low), f64, lo_at);
}

// Adds a tile's partial to the panel's sums, each row scaled by its factor (rounded to float32) and by a
// power of two.
inline void deposit_binned(std::int64_t elements, int rows, const TileScratch& scratch,
                           const double* HWY_RESTRICT scale, double* HWY_RESTRICT sums) {
  const F64 f64;
  const hn::Rebind<float, F64> half;
  alignas(64) double fits[kPanelRows];
  for (int lane = 0; lane < kPanelRows; lane += kLanes64)
    hn::Store(hn::Div(hn::Set(f64, kLimit / 2), hn::Load(f64, scale + lane)), f64, fits + lane);
  for (std::int64_t e = 0; e < elements; ++e) {
    for (int lane = 0; lane < rows; lane += kLanes64) {
      const auto scaled = hn::Mul(hn::Load(half, scratch.partial + e * kPanelRows + lane),
                                  hn::Load(half, scratch.factor + lane));
      const VD x = hn::PromoteTo(f64, scaled);
      double* hi = sums + 2 * e * kPanelRows + lane;
      binned_add(x, hn::Load(f64, scale + lane), hn::Load(f64, fits + lane), hi, hi + kPanelRows);
    }
  }
}

// online_scaled() of row_finish.h.
HWY_INLINE VF scaled(VF x, VF factor) {
  const F32 f32;
  const auto infinite = hn::Eq(hn::Abs(x), hn::Set(f32, std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(infinite, x, hn::Mul(x, factor));
}

// The online softmax in float32: sums = sums * keep + partial * take, both powers of two or 0.
inline void deposit_online(std::int64_t elements, int rows, const TileScratch& scratch,
                           const float* HWY_RESTRICT keep, const float* HWY_RESTRICT take,
                           float* HWY_RESTRICT sums) {
  const F32 f32;
  for (std::int64_t e = 0; e < elements; ++e) {
    for (int lane = 0; lane < rows; lane += kLanes) {
      float* to = sums + e * kPanelRows + lane;
      const VF old = scaled(hn::Load(f32, to), hn::Load(f32, keep + lane));
      const VF x = hn::Mul(hn::Load(f32, scratch.partial + e * kPanelRows + lane),
                           hn::Load(f32, scratch.factor + lane));
      const VF more = scaled(x, hn::Load(f32, take + lane));
      hn::Store(hn::Add(old, more), f32, to);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
