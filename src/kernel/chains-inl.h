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

// Rows of the register tile: 8 where there are 32 registers, 4 where there are 16.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
constexpr int kTileRows = 4;
#else
constexpr int kTileRows = 8;
#endif

// The one micro-kernel: c[i][lane] = sum over t of a[t * stride + i] * b[t * 48 + lane], t ascending from +0,
// for kRows values of i and kVectors vectors of lanes. `emit(i, c)` takes the sums.
template <int kRows, int kVectors, class Emit>
HWY_INLINE void chain_kernel(const float* HWY_RESTRICT a, std::int64_t stride, const float* HWY_RESTRICT b,
                             std::int64_t terms, const Emit& emit) {
  const F32 f32;
  const std::size_t lanes = hn::Lanes(f32);
  VF c0[kRows], c1[kRows], c2[kRows];  // separate arrays: GCC keeps these in registers
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) c0[i] = c1[i] = c2[i] = hn::Zero(f32);
  for (std::int64_t t = 0; t < terms; ++t) {
    const VF b0 = hn::Load(f32, b);
    const VF b1 = kVectors > 1 ? hn::Load(f32, b + lanes) : b0;
    const VF b2 = kVectors > 2 ? hn::Load(f32, b + 2 * lanes) : b0;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i]);
      c0[i] = fused(x, b0, c0[i]);
      if (kVectors > 1) c1[i] = fused(x, b1, c1[i]);
      if (kVectors > 2) c2[i] = fused(x, b2, c2[i]);
    }
    a += stride;
    b += kPanelRows;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const VF c[3] = {c0[i], c1[i], c2[i]};
    emit(i, c);
  }
}

// A packed group of `width` <= 8 values of i, cut into register tiles that this target can hold.
template <int kVectors, class Emit>
HWY_INLINE void group_kernel(const float* a, int width, const float* b, std::int64_t terms,
                             const Emit& emit) {
  int i = 0;
  const auto shifted = [&](int by) { return [&emit, by](int r, const VF* c) { emit(by + r, c); }; };
  for (; i + kTileRows <= width; i += kTileRows)
    chain_kernel<kTileRows, kVectors>(a + i, width, b, terms, shifted(i));
  if (kTileRows == 8 && i + 4 <= width) chain_kernel<4, kVectors>(a + i, width, b, terms, shifted(i)), i += 4;
  if (i + 2 <= width) chain_kernel<2, kVectors>(a + i, width, b, terms, shifted(i)), i += 2;
  if (i < width) chain_kernel<1, kVectors>(a + i, width, b, terms, shifted(i));
}

// Logits in log2 units of the panel rows against keys of the hull, and their largest per row.
template <bool kSoftcap>
HWY_INLINE void chain_scores(const TileShape& shape, const PackedFloats& tile, KeyRange hull,
                             const FloatPanel& panel, float* HWY_RESTRICT scores,
                             float* HWY_RESTRICT row_max) {
  const F32 f32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  const LogitVectors logits(shape.logits);
  for_lanes(panel.rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    VF top[kVectors];
    for (int j = 0; j < kVectors; ++j) top[j] = hn::Set(f32, -std::numeric_limits<float>::infinity());
    for (std::int64_t key = hull.begin; key < hull.end; key += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, tile.keys - key));
      float* to = scores + key * kPanelRows + lane;
      group_kernel<kVectors>(tile.k + key * shape.head_dim, width, panel.q + lane, shape.head_dim,
                             [&](int i, const VF* c) {
                               for (int j = 0; j < kVectors; ++j) {
                                 const VF s = logits.logit<kSoftcap>(c[j]);
                                 hn::Store(s, f32, to + i * kPanelRows + j * lanes);
                                 top[j] = hn::Max(s, top[j]);
                               }
                             });
    }
    for (int j = 0; j < kVectors; ++j) hn::Store(top[j], f32, row_max + lane + j * lanes);
  });
}

// Weighted sums of values over the hull.
HWY_INLINE void chain_values(const TileShape& shape, const PackedFloats& tile, KeyRange hull, int rows,
                             const float* weights, float* HWY_RESTRICT partial) {
  const F32 f32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  for_lanes(rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    for (std::int64_t dim = 0; dim < shape.value_dim; dim += kGroup) {
      const int width = static_cast<int>(std::min<std::int64_t>(kGroup, shape.value_dim - dim));
      float* to = partial + dim * kPanelRows + lane;
      group_kernel<kVectors>(tile.v + dim * tile.keys + hull.begin * width, width,
                             weights + hull.begin * kPanelRows + lane, hull.end - hull.begin,
                             [&](int i, const VF* c) {
                               for (int j = 0; j < kVectors; ++j)
                                 hn::Store(c[j], f32, to + i * kPanelRows + j * lanes);
                             });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
