// The three phases of a tile for a few query rows, per target. Scores, then weights, are [row][few_stride()].
#if defined(KVRING_KERNEL_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_DECODE_INL_H_
#undef KVRING_KERNEL_DECODE_INL_H_
#else
#define KVRING_KERNEL_DECODE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/few-inl.h"
#include "kernel/repair.h"
#include "kernel/softmax-inl.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

inline WeightStrides few_strides(const TileShape& shape) { return {few_stride(shape.max_keys), 1}; }

// The hull in whole vectors of keys on every target; keys beyond the hull are taken for hidden.
inline KeyRange whole_vectors(KeyRange hull) { return {hull.begin / 16 * 16, round_up(hull.end, 16)}; }

inline void few_dots(const TileShape& shape, const PackedFloats& tile, KeyRange hull, const FloatPanel& panel,
                     float* HWY_RESTRICT scores) {
  const FewTerms queries{panel.q, 1, kPanelRows, shape.head_dim};
  for_few_rows(panel.rows, [&](auto rows) {
    for_groups(hull.begin, hull.end, [&](auto tag, auto vectors, std::int64_t first, int i, int width) {
      few_kernel<false, decltype(rows)::value, decltype(vectors)::value>(
          tag, {tile.k + first * shape.head_dim + i, kGroup * shape.head_dim, width}, queries,
          {scores + first + i, few_stride(shape.max_keys), nullptr});
    });
  });
}

// Dots of one row become logits in place, those of hidden keys -inf; returns the largest.
template <bool kSoftcap>
HWY_INLINE float few_logits(const LogitTransform& transform, KeyRange keys, KeyRange seen,
                            float* HWY_RESTRICT scores) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const F32 f32;
  const LogitVectors logits(transform);
  for (std::int64_t key = keys.begin; key < keys.end; key += kLanes)
    hn::Store(logits.logit<kSoftcap>(hn::Load(f32, scores + key)), f32, scores + key);
  std::fill(scores + keys.begin, scores + seen.begin, kNone);
  std::fill(scores + seen.end, scores + keys.end, kNone);
  VF top = hn::Set(f32, kNone);
  for (std::int64_t key = keys.begin; key < keys.end; key += kLanes)
    top = hn::Max(hn::Load(f32, scores + key), top);
  return hn::GetLane(hn::MaxOfLanes(f32, top));
}

inline void few_scores(const TileShape& shape, const PackedFloats& tile, KeyRange hull,
                       const FloatPanel& panel, const RowKeys* seen, TileScratch& scratch) {
  few_dots(shape, tile, hull, panel, scratch.scores);
  const KeyRange keys = whole_vectors(hull);
  for (int i = 0; i < panel.rows; ++i) {
    KeyRange mine = hull;
    if (seen) mine = {seen->begin[i], seen->end[i]};
    if (mine.begin >= mine.end) mine = {keys.begin, keys.begin};
    float* scores = scratch.scores + i * few_stride(shape.max_keys);
    scratch.row_max[i] = shape.logits.cap != 0 ? few_logits<true>(shape.logits, keys, mine, scores)
                                               : few_logits<false>(shape.logits, keys, mine, scores);
  }
}

// Logits become weights in place. Their sum is a chain over keys, which lie in the lanes here: few_values()
// has it.
inline void few_weights(const TileShape& shape, KeyRange hull, int rows, TileScratch& scratch) {
  const F32 f32;
  const KeyRange keys = whole_vectors(hull);
  for (int i = 0; i < rows; ++i) {
    float* scores = scratch.scores + i * few_stride(shape.max_keys);
    const VF m = hn::Set(f32, scratch.row_max[i]);
    for (std::int64_t key = keys.begin; key < keys.end; key += kLanes) {
      const VF t = hn::Sub(hn::Load(f32, scores + key), m);
      hn::Store(exp2_nonpositive(t, kLowestWeight), f32, scores + key);
    }
  }
}

// Weighted sums of values over the hull, and the sums of weights.
inline void few_values(const TileShape& shape, const PackedFloats& tile, KeyRange hull, int rows,
                       TileScratch& scratch) {
  const F32 f32;
  const FewTerms weights{scratch.scores + hull.begin, few_stride(shape.max_keys), 1, hull.end - hull.begin};
  float sums_of_weights[kPanelRows] = {};
  for_few_rows(rows, [&](auto count) {
    constexpr int kRows = decltype(count)::value;
    for_groups(0, shape.value_dim, [&](auto tag, auto vectors, std::int64_t first, int i, int width) {
      constexpr int kVectors = decltype(vectors)::value;
      constexpr int kSums = kVectors * static_cast<int>(hn::MaxLanes(tag));
      alignas(64) float sums[kRows][kSums];
      const FewGroups values{tile.v + first * tile.keys + hull.begin * width + i, kGroup * tile.keys, width};
      const FewSums into{sums[0], kSums, sums_of_weights};
      if (first + i == 0) {
        few_kernel<true, kRows, kVectors>(tag, values, weights, into);
      } else {
        few_kernel<false, kRows, kVectors>(tag, values, weights, into);
      }
      for (int j = 0; j < kSums; ++j) {
        float* partial = scratch.partial + (first + i + j) * kPanelRows;
        for (int lane = 0; lane < kRows; lane += kLanes) hn::Store(hn::Zero(f32), f32, partial + lane);
        for (int r = 0; r < rows; ++r) partial[r] = sums[r][j];
      }
    });
  });
  float* to = scratch.partial + shape.value_dim * kPanelRows;
  std::fill_n(std::copy_n(sums_of_weights, rows, to), kPanelRows - rows, 0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
