// Per-target code of tile attention; included once per instruction set by tile.cc through foreach_target.
//
// The bit promise rests on three rules kept here. Lanes hold query rows (keys or dims where rows are few), so
// a wider vector only means more of them at once. Every sum over dims or keys takes its terms in one fixed
// order; a key a row does not see adds an exact zero. Everything else is a pure function of one element.

#if defined(KVRING_KERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_TILE_INL_H_
#undef KVRING_KERNEL_TILE_INL_H_
#else
#define KVRING_KERNEL_TILE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/amx.h"
#include "kernel/blocks-inl.h"
#include "kernel/chains-inl.h"
#include "kernel/decode-inl.h"
#include "kernel/deposit-inl.h"
#include "kernel/repair.h"
#include "kernel/softmax-inl.h"
#include "kernel/tile.h"
#include "kernel/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// The tile in float32, in its own packing.
inline PackedFloats widened(const TileShape& shape, const PackedTile& tile, TileScratch& scratch) {
  if (shape.kv_dtype == DType::kF32)
    return {reinterpret_cast<const float*>(tile.k), reinterpret_cast<const float*>(tile.v), tile.keys};
  const auto widen = shape.kv_dtype == DType::kBF16 ? widen_bf16 : widen_f16;
  widen(reinterpret_cast<const std::uint16_t*>(tile.k), tile.keys * shape.head_dim, scratch.k);
  widen(reinterpret_cast<const std::uint16_t*>(tile.v), tile.keys * shape.value_dim, scratch.v);
  return {scratch.k, scratch.v, tile.keys};
}

inline void fill_none(float* row_max) {
  std::fill_n(row_max, kPanelRows, -std::numeric_limits<float>::infinity());
}

// The work on one panel is three phases that leave their results in the scratch: dots and their maxima, then
// weights and their sums, then weighted values. Each kind of products has its own.

// What a phase needs beside the scratch.
struct PanelHull {
  KeyRange keys;
  const RowKeys* seen;
  int rows;
};
inline PanelHull hull_of(const RowKeys* seen, int rows, std::int64_t keys, std::int64_t step) {
  return {seen ? panel_hull(*seen, keys, step) : KeyRange{0, keys}, seen, rows};
}
inline float* sums_of_weights(const TileShape& shape, TileScratch& scratch) {
  return scratch.partial + shape.value_dim * kPanelRows;
}

struct ChainProducts {
  const TileShape& shape;
  const PackedFloats& tile;
  const float* q;

  HWY_INLINE void scores(const PanelHull& hull, TileScratch& scratch) const {
    fill_none(scratch.row_max);
    if (is_few(hull.rows)) return few_scores(shape, tile, hull.keys, {q, hull.rows}, hull.seen, scratch);
    if (shape.logits.cap != 0) {
      chain_scores<true>(shape, tile, hull.keys, {q, hull.rows}, scratch.scores, scratch.row_max);
    } else {
      chain_scores<false>(shape, tile, hull.keys, {q, hull.rows}, scratch.scores, scratch.row_max);
    }
    if (hull.seen) mask_pass(*hull.seen, hull.keys, hull.rows, scratch.scores, scratch.row_max);
  }
  HWY_INLINE void weights(const PanelHull& hull, TileScratch& scratch) const {
    row_maxima(hull.seen, hull.rows, 1.0f, scratch);
    if (is_few(hull.rows)) return few_weights(shape, hull.keys, hull.rows, scratch);
    std::fill_n(sums_of_weights(shape, scratch), kPanelRows, 0.0f);
    weights_pass<false>(hull.keys, hull.rows, 1.0f, scratch, sums_of_weights(shape, scratch));
  }
  HWY_INLINE void values(const PanelHull& hull, TileScratch& scratch) const {
    if (is_few(hull.rows)) return few_values(shape, tile, hull.keys, hull.rows, scratch);
    chain_values(shape, tile, hull.keys, hull.rows, scratch.scores, scratch.partial);
  }
};

// A positive scale keeps the order of dots, so that it can be left to the weights.
inline bool scale_later(const LogitTransform& logits) { return logits.cap == 0 && logits.scale > 0; }
inline float later_scale(const LogitTransform& logits) { return scale_later(logits) ? logits.scale : 1.0f; }

// Scores of the bfloat16 products; `dots(range)` computes the dots of a range of keys.
template <class Dots>
HWY_INLINE void bf16_scores(const TileShape& shape, const PanelHull& hull, TileScratch& scratch,
                            const Dots& dots) {
  // 64 keys of scores stay in the first-level cache between the passes over them.
  constexpr std::int64_t kStrip = 64;
  fill_none(scratch.row_max);
  for (std::int64_t key = hull.keys.begin; key < hull.keys.end; key += kStrip) {
    const KeyRange strip{key, std::min(key + kStrip, hull.keys.end)};
    dots(strip);
    if (scale_later(shape.logits)) {
      max_pass(strip, hull.rows, scratch.scores, scratch.row_max);
    } else if (shape.logits.cap != 0) {
      logits_pass<true>(shape.logits, strip, hull.rows, scratch.scores, scratch.row_max);
    } else {
      logits_pass<false>(shape.logits, strip, hull.rows, scratch.scores, scratch.row_max);
    }
  }
  if (hull.seen) mask_pass(*hull.seen, hull.keys, hull.rows, scratch.scores, scratch.row_max);
}

// The bfloat16 products by fused multiply-adds.
struct BlockProducts {
  const TileShape& shape;
  const PackedFloats& tile;
  const float* q;

  HWY_INLINE void scores(const PanelHull& hull, TileScratch& scratch) const {
    bf16_scores(shape, hull, scratch, [&](KeyRange strip) {
      block_multiply({tile.k, tile.keys, shape.head_dim}, strip, {0, shape.head_dim}, q, hull.rows,
                     scratch.scores);
    });
  }
  HWY_INLINE void weights(const PanelHull& hull, TileScratch& scratch) const {
    row_maxima(hull.seen, hull.rows, later_scale(shape.logits), scratch);
    std::fill_n(sums_of_weights(shape, scratch), kPanelRows, 0.0f);
    weights_pass<true>(hull.keys, hull.rows, later_scale(shape.logits), scratch,
                       sums_of_weights(shape, scratch));
  }
  HWY_INLINE void values(const PanelHull& hull, TileScratch& scratch) const {
    block_multiply({tile.v, shape.value_dim, tile.keys}, {0, shape.value_dim}, hull.keys, scratch.scores,
                   hull.rows, scratch.partial);
  }
};

template <class ProductsOf>
HWY_INLINE void run_phases(const ProductsOf& products, const PanelHull& hull, TileScratch& scratch) {
  products.scores(hull, scratch);
  products.weights(hull, scratch);
  products.values(hull, scratch);
}

// One panel against one tile, up to the tile's partial: everything but the accumulator.
inline void attend_floats(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                          const RowKeys* seen, TileScratch& scratch) {
  const bool blocks = shape.products == Products::kBF16;
  const PanelHull hull = hull_of(seen, panel.rows, tile.keys, blocks ? kBlockWidth : kGroup);
  if (blocks) {
    run_phases(BlockProducts{shape, tile, panel.q}, hull, scratch);
  } else {
    run_phases(ChainProducts{shape, tile, panel.q}, hull, scratch);
  }
  if (HWY_UNLIKELY(any_special(shape.value_dim, panel.rows, scratch.partial))) {
    const bool few = !blocks && is_few(panel.rows);
    repair_partial(shape, tile, panel, seen, scratch, few ? few_strides(shape) : WeightStrides());
  } else {
    std::fill_n(scratch.shift, kPanelRows, 0);
  }
}

inline void deposit(const TileShape& shape, const PanelJob& panel, TileScratch& scratch) {
  const std::int64_t elements = shape.value_dim + 1;
  if (shape.accumulation == Accumulation::kReproducible) {
    alignas(64) double scale[kPanelRows];
    raise_references(panel.state, shape.value_dim, scratch, scale);
    deposit_binned(elements, panel.q.rows, scratch, scale, panel_sums(panel.state));
  } else {
    alignas(64) float keep[kPanelRows];
    alignas(64) float take[kPanelRows];
    rescale_online(panel.state, scratch, keep, take);
    deposit_online(elements, panel.q.rows, scratch, keep, take, panel_online_sums(panel.state));
  }
}

#if HWY_TARGET == HWY_AVX3
// The panel's queries out of the packing for the matrix unit.
inline FloatPanel float_panel(const TileShape& shape, const PackedQueries& q, TileScratch& scratch) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(q.data);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    for (int i = 0; i < kPanelRows; ++i)
      scratch.q[d * kPanelRows + i] = bf16_to_float(from[pair_index(d, i)]);
  }
  return {scratch.q, q.rows};
}

// The bfloat16 products in the matrix unit.
struct MatrixUnitProducts {
  const TileShape& shape;
  const PackedTile& tile;
  const std::byte* q;
  bool check;                 // whether keys and values are tiny, for which the results are worthless
  mutable bool tiny = false;  // and what came of it

  HWY_INLINE void scores(const PanelHull& hull, TileScratch& scratch) const {
    const BlockMatrix<const std::uint16_t> k{reinterpret_cast<const std::uint16_t*>(tile.k), tile.keys,
                                             shape.head_dim};
    bf16_scores(shape, hull, scratch, [&](KeyRange strip) {
      tiny |= amx_multiply({k, strip, {0, shape.head_dim}, check}, reinterpret_cast<const std::uint16_t*>(q),
                           hull.rows, scratch.scores);
    });
  }
  HWY_INLINE void weights(const PanelHull& hull, TileScratch& scratch) const {
    row_maxima(hull.seen, hull.rows, later_scale(shape.logits), scratch);
    std::fill_n(sums_of_weights(shape, scratch), kPanelRows, 0.0f);
    weights_to_pairs(hull.keys, hull.rows, later_scale(shape.logits), scratch,
                     sums_of_weights(shape, scratch));
  }
  HWY_INLINE void values(const PanelHull& hull, TileScratch& scratch) const {
    const BlockMatrix<const std::uint16_t> v{reinterpret_cast<const std::uint16_t*>(tile.v), shape.value_dim,
                                             tile.keys};
    // The weights of a strip of keys stay in the first-level cache for all rows of values.
    constexpr std::int64_t kStrip = 128;
    std::fill_n(scratch.partial, shape.value_dim * kPanelRows, 0.0f);
    for (std::int64_t key = hull.keys.begin; key < hull.keys.end; key += kStrip) {
      const KeyRange strip{key, std::min(key + kStrip, hull.keys.end)};
      tiny |= amx_multiply_add({v, {0, shape.value_dim}, strip, check}, scratch.weights, hull.rows,
                               scratch.partial);
    }
  }
};

// Returns false, having done nothing that counts, where tiny keys or values are not for the matrix unit.
// `checked`: the whole tile is known to have none.
inline bool attend_matrix_unit(const TileShape& shape, const PackedTile& tile, const PanelJob& panel,
                               bool& checked, TileScratch& scratch) {
  const PanelHull hull = hull_of(panel.keys, panel.q.rows, tile.keys, kBlockWidth);
  const MatrixUnitProducts products{shape, tile, panel.q.data, !checked};
  run_phases(products, hull, scratch);
  if (HWY_UNLIKELY(products.tiny)) return false;
  checked |= hull.keys.begin == 0 && hull.keys.end == tile.keys;
  if (HWY_LIKELY(!any_special(shape.value_dim, hull.rows, scratch.partial))) {
    std::fill_n(scratch.shift, kPanelRows, 0);
    return true;
  }
  for (std::int64_t key = hull.keys.begin; key < hull.keys.end; ++key) {
    for (int i = 0; i < kPanelRows; ++i)
      scratch.scores[key * kPanelRows + i] = bf16_to_float(scratch.weights[pair_index(key, i)]);
  }
  repair_partial(shape, widened(shape, tile, scratch), float_panel(shape, panel.q, scratch), panel.keys,
                 scratch);
  return true;
}

inline void attend_tile_matrix_unit(const TileShape& shape, const PackedTile& tile,
                                    std::span<const PanelJob> panels, TileScratch& scratch) {
  const AmxTiles registers;
  bool checked = false;
  for (const PanelJob& panel : panels) {
    if (HWY_UNLIKELY(panel.q.tiny || !attend_matrix_unit(shape, tile, panel, checked, scratch))) {
      attend_floats(shape, widened(shape, tile, scratch), float_panel(shape, panel.q, scratch), panel.keys,
                    scratch);
    }
    deposit(shape, panel, scratch);
  }
}
#endif

inline void attend_tile_target(const TileShape& shape, const PackedTile& tile,
                               std::span<const PanelJob> panels, TileScratch& scratch) {
#if HWY_TARGET == HWY_AVX3
  if (shape.products == Products::kBF16 && amx_in_use()) {
    attend_tile_matrix_unit(shape, tile, panels, scratch);
    return;
  }
#endif
  const PackedFloats floats = widened(shape, tile, scratch);
  for (const PanelJob& panel : panels) {
    attend_floats(shape, floats, {reinterpret_cast<const float*>(panel.q.data), panel.q.rows}, panel.keys,
                  scratch);
    deposit(shape, panel, scratch);
  }
}

template <class ProductsOf>
HWY_INLINE void run_phase(TilePhase phase, const ProductsOf& products, const PanelHull& hull,
                          TileScratch& scratch) {
  if (phase == TilePhase::kScores) products.scores(hull, scratch);
  if (phase == TilePhase::kWeights) products.weights(hull, scratch);
  if (phase == TilePhase::kValues) products.values(hull, scratch);
}

inline void tile_phase_target(TilePhase phase, const TileShape& shape, const PackedTile& tile,
                              const PanelJob& panel, TileScratch& scratch) {
  if (phase == TilePhase::kWiden) {
    widened(shape, tile, scratch);
    return;
  }
  if (phase == TilePhase::kDeposit) {
    deposit(shape, panel, scratch);
    return;
  }
  const bool blocks = shape.products == Products::kBF16;
  const PanelHull hull = hull_of(panel.keys, panel.q.rows, tile.keys, blocks ? kBlockWidth : kGroup);
#if HWY_TARGET == HWY_AVX3
  if (blocks && amx_in_use()) {
    const AmxTiles registers;
    run_phase(phase, MatrixUnitProducts{shape, tile, panel.q.data, true}, hull, scratch);
    return;
  }
#endif
  PackedFloats floats{scratch.k, scratch.v, tile.keys};
  if (shape.kv_dtype == DType::kF32) floats = widened(shape, tile, scratch);
  const auto* q = reinterpret_cast<const float*>(panel.q.data);
  if (blocks) {
    run_phase(phase, BlockProducts{shape, floats, q}, hull, scratch);
  } else {
    run_phase(phase, ChainProducts{shape, floats, q}, hull, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
