// Per-target code of tile attention; included once per instruction set by tile.cc through foreach_target.
//
// The bit promise rests on three rules kept here. Lanes hold query rows, so a wider vector only means more
// rows at once. Every sum is one chain of fused multiply-adds in ascending order of dim or key; a key a row
// does not see adds an exact zero. Everything else is a pure function of one element.

#if defined(KVRING_KERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_TILE_INL_H_
#undef KVRING_KERNEL_TILE_INL_H_
#else
#define KVRING_KERNEL_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel/bins.h"
#include "kernel/repair.h"
#include "kernel/row_finish.h"
#include "kernel/tile.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using F64 = hn::CappedTag<double, 8>;
using VF = hn::Vec<F32>;
using VD = hn::Vec<F64>;

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

// The larger of t and floor; NaN in t stays NaN.
HWY_INLINE VF at_least(VF t, VF floor) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::Max(floor, t);  // x86 returns the second operand where one is NaN: a comparison saved
#else
  return hn::IfThenElse(hn::Lt(t, floor), floor, t);
#endif
}

// 2^t for t <= 0, 0 below -126.5; NaN stays NaN. Relative error 2^-22.
HWY_INLINE VF exp2_nonpositive(VF t) {
  const F32 f32;
  t = at_least(t, hn::Set(f32, -127.0f));
  // Adding 1.5 * 2^23 + 127 rounds t to an integer n and leaves n + 127 in the low bits.
  const VF magic = hn::Set(f32, 12583039.0f);
  const VF shifted = hn::Add(t, magic);
  const VF f = hn::Sub(t, hn::Sub(shifted, magic));
  // Coefficients: tools/exp2_coefficients.py.
  VF p = hn::Set(f32, 0x1.5bba16p-10f);
  p = fused(p, f, hn::Set(f32, 0x1.3cea88p-7f));
  p = fused(p, f, hn::Set(f32, 0x1.c6b752p-5f));
  p = fused(p, f, hn::Set(f32, 0x1.ebf9bcp-3f));
  p = fused(p, f, hn::Set(f32, 0x1.62e42ap-1f));
  p = fused(p, f, hn::Set(f32, 1.0f));
  const hn::RebindToSigned<F32> i32;
  return hn::Mul(p, hn::BitCast(f32, hn::ShiftLeft<23>(hn::BitCast(i32, shifted))));
}

// tanh: its Taylor series near 0, where 1 - e^-2|x| would cancel; relative error 2^-21.
HWY_INLINE VF tanh_f32(VF x) {
  const F32 f32;
  const VF a = hn::Abs(x);
  const VF e = exp2_nonpositive(hn::Mul(a, hn::Set(f32, -2.8853900817779268f)));
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

// Rows of the register tile: 8 where there are 32 registers, 4 where there are 16.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
constexpr int kTileRows = 4;
#else
constexpr int kTileRows = 8;
#endif

// The one micro-kernel: c[i][lane] = sum over t of a[t * stride + i] * b[t * 48 + lane], t ascending from +0,
// for kRows values of i and three vectors of lanes. `emit(i, c0, c1, c2)` takes the sums.
template <int kRows, class Emit>
HWY_INLINE void micro_kernel(const float* HWY_RESTRICT a, std::int64_t stride, const float* HWY_RESTRICT b,
                             std::int64_t terms, const Emit& emit) {
  const F32 f32;
  const std::size_t lanes = hn::Lanes(f32);
  VF c0[kRows], c1[kRows], c2[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) c0[i] = c1[i] = c2[i] = hn::Zero(f32);
  for (std::int64_t t = 0; t < terms; ++t) {
    const VF b0 = hn::Load(f32, b);
    const VF b1 = hn::Load(f32, b + lanes);
    const VF b2 = hn::Load(f32, b + 2 * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i]);
      c0[i] = fused(x, b0, c0[i]);
      c1[i] = fused(x, b1, c1[i]);
      c2[i] = fused(x, b2, c2[i]);
    }
    a += stride;
    b += kPanelRows;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) emit(i, c0[i], c1[i], c2[i]);
}

// A packed group of `width` <= 8 values of i, cut into register tiles that this target can hold.
template <class Emit>
HWY_INLINE void group_kernel(const float* a, int width, const float* b, std::int64_t terms,
                             const Emit& emit) {
  int i = 0;
  const auto shifted = [&](int by) {
    return [&emit, by](int r, VF x, VF y, VF z) { emit(by + r, x, y, z); };
  };
  for (; i + kTileRows <= width; i += kTileRows) micro_kernel<kTileRows>(a + i, width, b, terms, shifted(i));
  if (kTileRows == 8 && i + 4 <= width) micro_kernel<4>(a + i, width, b, terms, shifted(i)), i += 4;
  if (i + 2 <= width) micro_kernel<2>(a + i, width, b, terms, shifted(i)), i += 2;
  if (i < width) micro_kernel<1>(a + i, width, b, terms, shifted(i));
}

// Logits in log2 units of all panel rows against keys of the hull, and their largest per row.
template <bool kSoftcap>
HWY_INLINE void scores_pass(const TileShape& shape, const float* k, std::int64_t keys, KeyRange hull,
                            const float* q, float* HWY_RESTRICT scores, float* HWY_RESTRICT row_max) {
  const F32 f32;
  const std::size_t lanes = hn::Lanes(f32);
  const VF scale = hn::Set(f32, shape.logits.scale);
  const VF cap = hn::Set(f32, shape.logits.cap);
  const auto logit = [&](VF dot) {
    const VF s = hn::Mul(dot, scale);
    return kSoftcap ? hn::Mul(tanh_f32(s), cap) : s;
  };
  for (std::size_t lane = 0; lane < kPanelRows; lane += 3 * lanes) {
    VF m0 = hn::Set(f32, -std::numeric_limits<float>::infinity());
    VF m1 = m0, m2 = m0;
    for (std::int64_t key = hull.begin; key < hull.end; key += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, keys - key));
      float* to = scores + key * kPanelRows + lane;
      group_kernel(k + key * shape.head_dim, width, q + lane, shape.head_dim,
                   [&](int i, VF c0, VF c1, VF c2) {
                     c0 = logit(c0);
                     c1 = logit(c1);
                     c2 = logit(c2);
                     hn::Store(c0, f32, to + i * kPanelRows);
                     hn::Store(c1, f32, to + i * kPanelRows + lanes);
                     hn::Store(c2, f32, to + i * kPanelRows + 2 * lanes);
                     m0 = hn::Max(c0, m0);
                     m1 = hn::Max(c1, m1);
                     m2 = hn::Max(c2, m2);
                   });
    }
    hn::Store(m0, f32, row_max + lane);
    hn::Store(m1, f32, row_max + lane + lanes);
    hn::Store(m2, f32, row_max + lane + 2 * lanes);
  }
}

// Hidden logits become -inf, whatever they were, and the row maxima are taken anew over what is seen.
inline void mask_pass(const RowKeys& rows, KeyRange hull, float* HWY_RESTRICT scores,
                      float* HWY_RESTRICT row_max) {
  const F32 f32;
  const hn::RebindToSigned<F32> i32;
  const VF none = hn::Set(f32, -std::numeric_limits<float>::infinity());
  for (std::size_t lane = 0; lane < kPanelRows; lane += hn::Lanes(f32)) {
    const auto begin = hn::LoadU(i32, rows.begin + lane);
    const auto end = hn::LoadU(i32, rows.end + lane);
    VF m = none;
    for (std::int64_t key = hull.begin; key < hull.end; ++key) {
      const auto at = hn::Set(i32, static_cast<std::int32_t>(key));
      const auto seen = hn::RebindMask(f32, hn::AndNot(hn::Lt(at, begin), hn::Lt(at, end)));
      float* s = scores + key * kPanelRows + lane;
      const VF logit = hn::IfThenElse(seen, hn::Load(f32, s), none);
      hn::Store(logit, f32, s);
      m = hn::Max(logit, m);
    }
    hn::Store(m, f32, row_max + lane);
  }
}

// The integral reference m of each row's weights in this tile: what enters the accumulator (`tile_max`) and
// what is subtracted from logits (`subtract`), which must be finite.
inline void row_maxima(const RowKeys* rows, const float* row_max, float* tile_max, float* subtract) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kPanelRows; ++i) {
    if (rows && rows->begin[i] >= rows->end[i]) {
      tile_max[i] = -kInfinity;  // sees nothing here
      subtract[i] = 0;
    } else if (std::fabs(row_max[i]) < kInfinity) {
      tile_max[i] = subtract[i] = std::ceil(row_max[i]);
    } else {
      // All logits -inf, or one +inf or NaN: the weights come out 0 or NaN by themselves, as in plain
      // attention.
      tile_max[i] = kSawOnlyZeroWeights;
      subtract[i] = row_max[i] > 0 ? row_max[i] : 0;
    }
  }
}

// Logits become weights 2^(s - m), in place; their sums go to `sums`.
inline void weights_pass(KeyRange hull, const float* HWY_RESTRICT m, float* HWY_RESTRICT scores,
                         float* HWY_RESTRICT sums) {
  const F32 f32;
  const std::size_t lanes = hn::Lanes(f32);
  for (std::size_t lane = 0; lane < kPanelRows; lane += 3 * lanes) {
    const VF m0 = hn::Load(f32, m + lane), m1 = hn::Load(f32, m + lane + lanes),
             m2 = hn::Load(f32, m + lane + 2 * lanes);
    VF l0 = hn::Zero(f32), l1 = l0, l2 = l0;
    for (std::int64_t key = hull.begin; key < hull.end; ++key) {
      float* s = scores + key * kPanelRows + lane;
      const VF p0 = exp2_nonpositive(hn::Sub(hn::Load(f32, s), m0));
      const VF p1 = exp2_nonpositive(hn::Sub(hn::Load(f32, s + lanes), m1));
      const VF p2 = exp2_nonpositive(hn::Sub(hn::Load(f32, s + 2 * lanes), m2));
      hn::Store(p0, f32, s);
      hn::Store(p1, f32, s + lanes);
      hn::Store(p2, f32, s + 2 * lanes);
      l0 = hn::Add(l0, p0);
      l1 = hn::Add(l1, p1);
      l2 = hn::Add(l2, p2);
    }
    hn::Store(l0, f32, sums + lane);
    hn::Store(l1, f32, sums + lane + lanes);
    hn::Store(l2, f32, sums + lane + 2 * lanes);
  }
}

// Weighted sums of values over the hull. Returns true when any came out infinite or NaN.
HWY_INLINE bool values_pass(const TileShape& shape, const float* v, std::int64_t keys, KeyRange hull,
                            const float* weights, float* HWY_RESTRICT partial) {
  const F32 f32;
  const std::size_t lanes = hn::Lanes(f32);
  // x - x is 0 for finite x and NaN otherwise, and NaN is sticky.
  VF special = hn::Zero(f32);
  for (std::size_t lane = 0; lane < kPanelRows; lane += 3 * lanes) {
    for (std::int64_t dim = 0; dim < shape.value_dim; dim += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, shape.value_dim - dim));
      float* to = partial + dim * kPanelRows + lane;
      group_kernel(v + dim * keys + hull.begin * width, width, weights + hull.begin * kPanelRows + lane,
                   hull.end - hull.begin, [&](int i, VF c0, VF c1, VF c2) {
                     hn::Store(c0, f32, to + i * kPanelRows);
                     hn::Store(c1, f32, to + i * kPanelRows + lanes);
                     hn::Store(c2, f32, to + i * kPanelRows + 2 * lanes);
                     special = hn::Add(special, hn::Sub(c0, c0));
                     special = hn::Add(special, hn::Add(hn::Sub(c1, c1), hn::Sub(c2, c2)));
                   });
    }
  }
  return !hn::AllTrue(f32, hn::Eq(special, special));
}

// Adds terms to one vector of (hi, lo) of BinnedSum; see include/kvring/partial.h for the rules and
// src/kernel/partial.cc for the scalar twin. `hi` and `lo` are updated in memory.
HWY_INLINE void binned_add(VD x, double* HWY_RESTRICT hi_at, double* HWY_RESTRICT lo_at) {
  const F64 f64;
  const hn::RebindToUnsigned<F64> u64;
  const auto half_bit = hn::Set(u64, kHalfBit);
  VD hi = hn::Load(f64, hi_at);
  VD lo = hn::Load(f64, lo_at);
  auto part_bits = hn::And(hn::BitCast(u64, hi), hn::Set(u64, kExponentBits));
  VD part = hn::BitCast(f64, part_bits);
  VD prime = hn::BitCast(f64, hn::Or(part_bits, half_bit));
  const VD size = hn::Abs(x);
  if (HWY_UNLIKELY(!hn::AllTrue(f64, hn::Lt(size, hn::Mul(part, hn::Set(f64, kLimit)))))) {
    const VD infinity = hn::Set(f64, std::numeric_limits<double>::infinity());
    const VD zero = hn::Zero(f64);
    const auto finite = hn::Lt(size, infinity);
    lo = hn::IfThenElse(finite, lo, hn::Add(lo, x));
    x = hn::IfThenElseZero(finite, x);
    // From the exponent of x to that of the units of its bin: b = ceil((e + 1) / 32), 2^(52 + 32 (b - 1)),
    // all biased.
    const auto exponent = hn::ShiftRight<52>(hn::BitCast(u64, hn::Abs(x)));
    const auto bin = hn::ShiftRight<5>(hn::Add(exponent, hn::Set(u64, std::uint64_t{1058})));
    const auto to_bits = hn::ShiftLeft<52>(hn::Sub(hn::ShiftLeft<5>(bin), hn::Set(u64, std::uint64_t{1005})));
    const VD to = hn::BitCast(f64, to_bits);
    const auto raised = hn::Gt(to, part);
    const auto by_one = hn::Eq(hn::Mul(to, hn::Set(f64, kBinRatio)), part);
    const VD moved = hn::IfThenElse(by_one, hn::Sub(hi, prime), zero);
    lo = hn::IfThenElse(hn::And(raised, hn::Lt(hn::Abs(lo), infinity)), moved, lo);
    part_bits = hn::IfThenElse(hn::RebindMask(u64, raised), to_bits, part_bits);
    prime = hn::BitCast(f64, hn::Or(part_bits, half_bit));
    hi = hn::IfThenElse(raised, prime, hi);
  }
  const VD high = hn::Sub(hn::Add(x, prime), prime);
  const VD low_prime = hn::Mul(prime, hn::Set(f64, kBinRatio));
  const VD low = hn::Sub(hn::Add(hn::Sub(x, high), low_prime), low_prime);
  hn::Store(hn::Add(hi, high), f64, hi_at);
  hn::Store(hn::Add(lo, low), f64, lo_at);
}

// Adds a tile's partial to the panel's sums, each row scaled by a power of two.
inline void deposit_binned(std::int64_t elements, const float* HWY_RESTRICT partial,
                           const double* HWY_RESTRICT scale, double* HWY_RESTRICT sums) {
  const F64 f64;
  const hn::Rebind<float, F64> half;
  for (std::int64_t e = 0; e < elements; ++e) {
    for (std::size_t lane = 0; lane < kPanelRows; lane += hn::Lanes(f64)) {
      const VD x = hn::PromoteTo(f64, hn::Load(half, partial + e * kPanelRows + lane));
      double* hi = sums + 2 * e * kPanelRows + lane;
      binned_add(hn::Mul(x, hn::Load(f64, scale + lane)), hi, hi + kPanelRows);
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
inline void deposit_online(std::int64_t elements, const float* HWY_RESTRICT partial,
                           const float* HWY_RESTRICT keep, const float* HWY_RESTRICT take,
                           float* HWY_RESTRICT sums) {
  const F32 f32;
  for (std::int64_t e = 0; e < elements; ++e) {
    for (std::size_t lane = 0; lane < kPanelRows; lane += hn::Lanes(f32)) {
      float* to = sums + e * kPanelRows + lane;
      const VF old = scaled(hn::Load(f32, to), hn::Load(f32, keep + lane));
      const VF more = scaled(hn::Load(f32, partial + e * kPanelRows + lane), hn::Load(f32, take + lane));
      hn::Store(hn::Add(old, more), f32, to);
    }
  }
}

inline void widen_bf16(const std::uint16_t* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const hn::Rebind<std::uint16_t, F32> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, from + i)))), f32,
               to + i);
  }
  for (; i < count; ++i) to[i] = bf16_to_float(from[i]);
}

// f16 by integer steps on every target, so that subnormals, infinities and NaN come out the same: shift into
// the float32 fields, then multiply by 2^112 to move the exponent (exact, and it normalises subnormals).
inline void widen_f16(const std::uint16_t* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const hn::Rebind<std::uint16_t, F32> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::PromoteTo(u32, hn::LoadU(u16, from + i));
    const auto magnitude = hn::And(bits, hn::Set(u32, 0x7fffu));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto special = hn::Gt(magnitude, hn::Set(u32, 0x7bffu));
    const auto finite =
        hn::BitCast(u32, hn::Mul(hn::BitCast(f32, hn::ShiftLeft<13>(magnitude)), hn::Set(f32, 0x1p112f)));
    const auto nonfinite = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(u32, 0x7f800000u));
    hn::StoreU(hn::BitCast(f32, hn::Or(hn::IfThenElse(special, nonfinite, finite), sign)), f32, to + i);
  }
  for (; i < count; ++i) to[i] = f16_to_float(from[i]);
}

// One panel against one tile, up to the tile's partial: everything but the accumulator.
inline void attend_panel(const TileShape& shape, const float* k, const float* v, std::int64_t keys,
                         const PanelJob& panel, TileScratch& scratch) {
  KeyRange hull{0, keys};
  if (panel.keys) hull = panel_hull(*panel.keys, keys);
  alignas(64) float row_max[kPanelRows];
  alignas(64) float subtract[kPanelRows];
  if (shape.logits.cap != 0) {
    scores_pass<true>(shape, k, keys, hull, panel.q, scratch.scores, row_max);
  } else {
    scores_pass<false>(shape, k, keys, hull, panel.q, scratch.scores, row_max);
  }
  if (panel.keys) mask_pass(*panel.keys, hull, scratch.scores, row_max);
  row_maxima(panel.keys, row_max, scratch.tile_max, subtract);
  float* sums = scratch.partial + shape.value_dim * kPanelRows;
  weights_pass(hull, subtract, scratch.scores, sums);
  if (HWY_UNLIKELY(values_pass(shape, v, keys, hull, scratch.scores, scratch.partial))) {
    repair_partial(shape, {k, v, keys}, panel, scratch);
  } else {
    std::fill_n(scratch.shift, kPanelRows, 0);
  }
}

inline void attend_tile_target(const TileShape& shape, const PackedTile& tile,
                               std::span<const PanelJob> panels, TileScratch& scratch) {
  const float* k = reinterpret_cast<const float*>(tile.k);
  const float* v = reinterpret_cast<const float*>(tile.v);
  if (shape.kv_dtype != DType::kF32) {
    const auto widen = shape.kv_dtype == DType::kBF16 ? widen_bf16 : widen_f16;
    widen(reinterpret_cast<const std::uint16_t*>(tile.k), tile.keys * shape.head_dim, scratch.k);
    widen(reinterpret_cast<const std::uint16_t*>(tile.v), tile.keys * shape.value_dim, scratch.v);
    k = scratch.k;
    v = scratch.v;
  }
  const std::int64_t elements = shape.value_dim + 1;
  for (const PanelJob& panel : panels) {
    attend_panel(shape, k, v, tile.keys, panel, scratch);
    if (shape.accumulation == Accumulation::kReproducible) {
      alignas(64) double scale[kPanelRows];
      raise_references(panel.state, shape.value_dim, scratch, scale);
      deposit_binned(elements, scratch.partial, scale, panel_sums(panel.state));
    } else {
      alignas(64) float keep[kPanelRows];
      alignas(64) float take[kPanelRows];
      rescale_online(panel.state, scratch, keep, take);
      deposit_online(elements, scratch.partial, keep, take, panel_online_sums(panel.state));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
