// The bfloat16 products with fused multiply-adds, per target: what the matrix unit of src/kernel/amx.cc does,
// to the bit. Terms are taken in blocks of 32; in a block the even and the odd terms are a chain each from
// zero, and their sum is added to what there is.
#if defined(KVRING_KERNEL_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_BLOCKS_INL_H_
#undef KVRING_KERNEL_BLOCKS_INL_H_
#else
#define KVRING_KERNEL_BLOCKS_INL_H_
#endif

#include <algorithm>

#include "kernel/blocks.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// Rows of the register tile: each has two accumulators for each of three vectors.
constexpr int kBlockRows = kSixteenRegisters ? 2 : 4;

// c[i][lane] += a block of terms: a[i * stride + t] * b[t * 48 + lane] over t < terms <= 32.
template <int kRows, int kVectors>
HWY_INLINE void block_kernel(const float* HWY_RESTRICT a, std::int64_t stride, const float* HWY_RESTRICT b,
                             std::int64_t terms, float* HWY_RESTRICT c) {
  const F32 f32;
  VF even0[kRows], even1[kRows], even2[kRows], odd0[kRows], odd1[kRows], odd2[kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
    even0[i] = even1[i] = even2[i] = odd0[i] = odd1[i] = odd2[i] = hn::Zero(f32);
  std::int64_t t = 0;
  for (; t + 1 < terms; t += 2, b += 2 * kPanelRows) {
    const float* next = b + kPanelRows;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i * stride + t]);
      even0[i] = fused(x, hn::Load(f32, b), even0[i]);
      if (kVectors > 1) even1[i] = fused(x, hn::Load(f32, b + kLanes), even1[i]);
      if (kVectors > 2) even2[i] = fused(x, hn::Load(f32, b + 2 * kLanes), even2[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i * stride + t + 1]);
      odd0[i] = fused(x, hn::Load(f32, next), odd0[i]);
      if (kVectors > 1) odd1[i] = fused(x, hn::Load(f32, next + kLanes), odd1[i]);
      if (kVectors > 2) odd2[i] = fused(x, hn::Load(f32, next + 2 * kLanes), odd2[i]);
    }
  }
  if (t < terms) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const VF x = hn::Set(f32, a[i * stride + t]);
      even0[i] = fused(x, hn::Load(f32, b), even0[i]);
      if (kVectors > 1) even1[i] = fused(x, hn::Load(f32, b + kLanes), even1[i]);
      if (kVectors > 2) even2[i] = fused(x, hn::Load(f32, b + 2 * kLanes), even2[i]);
    }
  }
  const auto add = [&](float* to, VF even, VF odd) {
    hn::Store(hn::Add(hn::Load(f32, to), hn::Add(even, odd)), f32, to);
  };
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    float* to = c + i * kPanelRows;
    add(to, even0[i], odd0[i]);
    if (kVectors > 1) add(to + kLanes, even1[i], odd1[i]);
    if (kVectors > 2) add(to + 2 * kLanes, even2[i], odd2[i]);
  }
}

// c[row][lane] = sum over columns of a[row][column] * b[column][lane], for rows of `a` in `rows` (a multiple
// of 16, or the last) and columns in `columns` (likewise of 32). b and c are indexed by absolute row, column.
HWY_INLINE void block_multiply(const BlockMatrix<const float>& a, KeyRange rows, KeyRange columns,
                               const float* HWY_RESTRICT b, int query_rows, float* HWY_RESTRICT c) {
  const F32 f32;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (int lane = 0; lane < query_rows; lane += kLanes)
      hn::Store(hn::Zero(f32), f32, c + row * kPanelRows + lane);
  }
  for_lanes(query_rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    for (std::int64_t group = rows.begin; group < rows.end; group += kBlockHeight) {
      const std::int64_t height = a.height(group);
      for (std::int64_t column = columns.begin; column < columns.end; column += kBlockWidth) {
        const std::int64_t width = a.width(column);
        const float* block = a.block(group, column);
        const float* from = b + column * kPanelRows + lane;
        float* to = c + group * kPanelRows + lane;
        std::int64_t i = 0;
        for (; i + kBlockRows <= height; i += kBlockRows)
          block_kernel<kBlockRows, kVectors>(block + i * width, width, from, width, to + i * kPanelRows);
        for (; i < height; ++i)
          block_kernel<1, kVectors>(block + i * width, width, from, width, to + i * kPanelRows);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
