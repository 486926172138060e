// The float32 products: each sum over dims or keys is one chain of fused multiply-adds, per target.

#if defined(KVRING_KERNEL_CHAINS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_CHAINS_INL_H_
#undef KVRING_KERNEL_CHAINS_INL_H_
#else
#define KVRING_KERNEL_CHAINS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/softmax-inl.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// Rows of the register tile.
constexpr int kTileRows = kSixteenRegisters ? 4 : 8;

// Floats that memory is asked for before they are needed; 1 Ki and 2 Ki were equally good, less or more
// worse.
constexpr std::int64_t kFetchAhead = 1024;

// The one micro-kernel: c[i][lane] = sum over t of a[t * stride + i] * b[t * 48 + lane], t ascending from +0,
// for kRows values of i and kVectors vectors of lanes. `emit(rows, j, c)` takes the kRows sums of vector j.
template <int kRows, int kVectors, class Emit>
HWY_INLINE void chain_kernel(const float* HWY_RESTRICT a, std::int64_t stride, const float* HWY_RESTRICT b,
                             std::int64_t terms, const Emit& emit) {
  const F32 f32;
  VF c0[kRows], c1[kRows], c2[kRows];  // separate arrays: GCC keeps these in registers
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) c0[i] = c1[i] = c2[i] = hn::Zero(f32);
  for (std::int64_t t = 0; t < terms; ++t) {
    const VF b0 = hn::Load(f32, b);
    const VF b1 = kVectors > 1 ? hn::Load(f32, b + kLanes) : b0;
    const VF b2 = kVectors > 2 ? hn::Load(f32, b + 2 * kLanes) : b0;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i]);
      c0[i] = fused(x, b0, c0[i]);
      if (kVectors > 1) c1[i] = fused(x, b1, c1[i]);
      if (kVectors > 2) c2[i] = fused(x, b2, c2[i]);
    }
    // With few rows, as in decode, memory is the limit: packed blocks are read front to back.
    if (kVectors == 1) __builtin_prefetch(a + kFetchAhead);
    a += stride;
    b += kPanelRows;
  }
  constexpr std::integral_constant<int, kRows> kCount;
  emit(kCount, 0, c0);
  if (kVectors > 1) emit(kCount, 1, c1);
  if (kVectors > 2) emit(kCount, 2, c2);
}

// A packed group of `width` <= 8 values of i, cut into register tiles that this target can hold. `emit(first,
// rows, j, c)` takes each.
template <int kVectors, class Emit>
HWY_INLINE void group_kernel(const float* a, int width, const float* b, std::int64_t terms,
                             const Emit& emit) {
  const auto from = [&](int first) {
    return [&emit, first](auto count, int j, const VF* c) { emit(first, count, j, c); };
  };
  int i = 0;
  for (; i + kTileRows <= width; i += kTileRows)
    chain_kernel<kTileRows, kVectors>(a + i, width, b, terms, from(i));
  if (kTileRows == 8 && i + 4 <= width) chain_kernel<4, kVectors>(a + i, width, b, terms, from(i)), i += 4;
  if (i + 2 <= width) chain_kernel<2, kVectors>(a + i, width, b, terms, from(i)), i += 2;
  if (i < width) chain_kernel<1, kVectors>(a + i, width, b, terms, from(i));
}

// Logits in log2 units of the panel rows against keys of the hull, and their largest per row.
template <bool kSoftcap>
HWY_INLINE void chain_scores(const TileShape& shape, const PackedFloats& tile, KeyRange hull,
                             const FloatPanel& panel, float* HWY_RESTRICT scores,
                             float* HWY_RESTRICT row_max) {
  const F32 f32;
  const LogitVectors logits(shape.logits);
  for_lanes(panel.rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    for (std::int64_t key = hull.begin; key < hull.end; key += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, tile.keys - key));
      group_kernel<kVectors>(tile.k + key * shape.head_dim, width, panel.q + lane, shape.head_dim,
                             [&](int first, auto count, int j, const VF* c) {
                               // The maximum is kept in memory: in registers it would drive out sums.
                               float* max_at = row_max + lane + j * kLanes;
                               float* to = scores + (key + first) * kPanelRows + lane + j * kLanes;
                               VF top = hn::Load(f32, max_at);
#pragma GCC unroll 8
                               for (int i = 0; i < decltype(count)::value; ++i) {
                                 const VF s = logits.template logit<kSoftcap>(c[i]);
                                 hn::Store(s, f32, to + i * kPanelRows);
                                 top = hn::Max(s, top);
                               }
                               hn::Store(top, f32, max_at);
                             });
    }
  });
}

// Weighted sums of values over the hull.
HWY_INLINE void chain_values(const TileShape& shape, const PackedFloats& tile, KeyRange hull, int rows,
                             const float* weights, float* HWY_RESTRICT partial) {
  const F32 f32;
  for_lanes(rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    for (std::int64_t dim = 0; dim < shape.value_dim; dim += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, shape.value_dim - dim));
      group_kernel<kVectors>(tile.v + dim * tile.keys + hull.begin * width, width,
                             weights + hull.begin * kPanelRows + lane, hull.end - hull.begin,
                             [&](int first, auto count, int j, const VF* c) {
                               float* to = partial + (dim + first) * kPanelRows + lane + j * kLanes;
#pragma GCC unroll 8
                               for (int i = 0; i < decltype(count)::value; ++i)
                                 hn::Store(c[i], f32, to + i * kPanelRows);
                             });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
