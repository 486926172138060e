// Per-target code of tile attention; included once per instruction set by tile.cc through foreach_target.
//
// The bit promise rests on three rules kept here. Lanes hold query rows, so a wider vector only means more
// rows at once. Every sum over dims or keys takes its terms in one fixed order; a key a row does not see adds
// an exact zero. Everything else is a pure function of one element.

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

// The float32 products: scores, weights and partial of one panel.
inline void attend_chains(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                          KeyRange hull, TileScratch& scratch) {
  alignas(64) float row_max[kPanelRows];
  fill_none(row_max);
  if (shape.logits.cap != 0) {
    chain_scores<true>(shape, tile, hull, panel, scratch.scores, row_max);
  } else {
    chain_scores<false>(shape, tile, hull, panel, scratch.scores, row_max);
  }
  if (panel.keys) mask_pass(*panel.keys, hull, panel.rows, scratch.scores, row_max);
  row_maxima(panel.keys, panel.rows, row_max, scratch);
  weights_pass<false>(hull, panel.rows, row_max, 1.0f, scratch.scores,
                      scratch.partial + shape.value_dim * kPanelRows);
  chain_values(shape, tile, hull, panel.rows, scratch.scores, scratch.partial);
}

// What lies between the bfloat16 products: dots become what `weights` takes. `dots(range)` computes those of
// a range of keys.
template <class Dots>
HWY_INLINE void bf16_scores(const TileShape& shape, KeyRange hull, const RowKeys* seen, int rows,
                            TileScratch& scratch, float* row_max, float& scale, const Dots& dots) {
  // 64 keys of scores stay in the first-level cache between the passes over them.
  constexpr std::int64_t kStrip = 64;
  fill_none(row_max);
  // A positive scale keeps the order of dots, so that it can be left to the weights.
  const bool raw = shape.logits.cap == 0 && shape.logits.scale > 0;
  scale = raw ? shape.logits.scale : 1.0f;
  for (std::int64_t key = hull.begin; key < hull.end; key += kStrip) {
    const KeyRange strip{key, std::min(key + kStrip, hull.end)};
    dots(strip);
    if (raw) {
      max_pass(strip, rows, scratch.scores, row_max);
    } else if (shape.logits.cap != 0) {
      logits_pass<true>(shape.logits, strip, rows, scratch.scores, row_max);
    } else {
      logits_pass<false>(shape.logits, strip, rows, scratch.scores, row_max);
    }
  }
  if (seen) mask_pass(*seen, hull, rows, scratch.scores, row_max);
  for (int i = 0; i < kPanelRows; ++i) row_max[i] *= scale;
  row_maxima(seen, rows, row_max, scratch);
}

// The bfloat16 products by fused multiply-adds.
inline void attend_blocks(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                          KeyRange hull, TileScratch& scratch) {
  alignas(64) float row_max[kPanelRows];
  float scale = 1;
  bf16_scores(shape, hull, panel.keys, panel.rows, scratch, row_max, scale, [&](KeyRange strip) {
    block_multiply({tile.k, tile.keys, shape.head_dim}, strip, {0, shape.head_dim}, panel.q, panel.rows,
                   scratch.scores);
  });
  weights_pass<true>(hull, panel.rows, row_max, scale, scratch.scores,
                     scratch.partial + shape.value_dim * kPanelRows);
  block_multiply({tile.v, shape.value_dim, tile.keys}, {0, shape.value_dim}, hull, scratch.scores, panel.rows,
                 scratch.partial);
}

// One panel against one tile, up to the tile's partial: everything but the accumulator.
inline void attend_floats(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                          TileScratch& scratch) {
  const bool blocks = shape.products == Products::kBF16;
  KeyRange hull{0, tile.keys};
  if (panel.keys) hull = panel_hull(*panel.keys, tile.keys, blocks ? kBlockWidth : kGroup);
  if (blocks) {
    attend_blocks(shape, tile, panel, hull, scratch);
  } else {
    attend_chains(shape, tile, panel, hull, scratch);
  }
  if (HWY_UNLIKELY(any_special(shape.value_dim, panel.rows, scratch.partial))) {
    repair_partial(shape, tile, panel, scratch);
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
inline bool any_tiny(const std::uint16_t* bits, std::int64_t count) {
  const hn::ScalableTag<std::uint16_t> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u16));
  // Magnitude - 1 wraps 0 to the largest number.
  const auto magnitude = hn::Set(u16, 0x7fff);
  const auto one = hn::Set(u16, 1);
  auto least = hn::Set(u16, 0xffff);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    least = hn::Min(least, hn::Sub(hn::And(hn::LoadU(u16, bits + i), magnitude), one));
  bool tiny = !hn::AllFalse(u16, hn::Lt(least, hn::Set(u16, ((127 - 56) << 7) - 1)));
  for (; i < count; ++i) tiny |= is_tiny(bits[i]);
  return tiny;
}

// The panel's queries out of the packing for the matrix unit.
inline FloatPanel float_panel(const TileShape& shape, const PanelJob& panel, TileScratch& scratch) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(panel.q.data);
  for (std::int64_t d = 0; d < shape.head_dim; ++d) {
    for (int i = 0; i < kPanelRows; ++i)
      scratch.q[d * kPanelRows + i] = bf16_to_float(from[pair_index(d, i)]);
  }
  return {scratch.q, panel.q.rows, panel.keys};
}

// The bfloat16 products in the matrix unit.
inline void attend_matrix_unit(const TileShape& shape, const PackedTile& tile, const PanelJob& panel,
                               TileScratch& scratch) {
  const auto* q = reinterpret_cast<const std::uint16_t*>(panel.q.data);
  const int rows = panel.q.rows;
  KeyRange hull{0, tile.keys};
  if (panel.keys) hull = panel_hull(*panel.keys, tile.keys, kBlockWidth);
  alignas(64) float row_max[kPanelRows];
  float scale = 1;
  bf16_scores(shape, hull, panel.keys, rows, scratch, row_max, scale, [&](KeyRange strip) {
    amx_multiply({reinterpret_cast<const std::uint16_t*>(tile.k), tile.keys, shape.head_dim}, strip,
                 {0, shape.head_dim}, q, rows, scratch.scores);
  });
  weights_to_pairs(hull, rows, row_max, scale, scratch, scratch.partial + shape.value_dim * kPanelRows);
  amx_multiply({reinterpret_cast<const std::uint16_t*>(tile.v), shape.value_dim, tile.keys},
               {0, shape.value_dim}, hull, scratch.weights, rows, scratch.partial);
  if (HWY_LIKELY(!any_special(shape.value_dim, rows, scratch.partial))) {
    std::fill_n(scratch.shift, kPanelRows, 0);
    return;
  }
  for (std::int64_t key = hull.begin; key < hull.end; ++key) {
    for (int i = 0; i < kPanelRows; ++i)
      scratch.scores[key * kPanelRows + i] = bf16_to_float(scratch.weights[pair_index(key, i)]);
  }
  repair_partial(shape, widened(shape, tile, scratch), float_panel(shape, panel, scratch), scratch);
}

inline void attend_tile_matrix_unit(const TileShape& shape, const PackedTile& tile,
                                    std::span<const PanelJob> panels, TileScratch& scratch) {
  const AmxTiles registers;
  const bool tiny = any_tiny(reinterpret_cast<const std::uint16_t*>(tile.k), tile.keys * shape.head_dim) ||
                    any_tiny(reinterpret_cast<const std::uint16_t*>(tile.v), tile.keys * shape.value_dim);
  for (const PanelJob& panel : panels) {
    if (HWY_UNLIKELY(tiny || panel.q.tiny)) {
      attend_floats(shape, widened(shape, tile, scratch), float_panel(shape, panel, scratch), scratch);
    } else {
      attend_matrix_unit(shape, tile, panel, scratch);
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
    attend_floats(shape, floats, {reinterpret_cast<const float*>(panel.q.data), panel.q.rows, panel.keys},
                  scratch);
    deposit(shape, panel, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
