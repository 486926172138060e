// What vectors do not do: row bookkeeping of the accumulators, and tiles whose sums are not finite. Scalar
// code, called once per panel and tile (or hardly ever), shared by all targets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/tile.h"

namespace kvring {

struct KeyRange {
  std::int64_t begin, end;
};
// The hull of the keys that the rows see, widened to whole groups of `step` keys; empty (begin == end) when
// no row sees any.
KeyRange panel_hull(const RowKeys& rows, std::int64_t keys, std::int64_t step);

// A tile in the packing of its products, and a panel's queries, all in float32.
struct PackedFloats {
  const float* k;
  const float* v;
  std::int64_t keys;
};
struct FloatPanel {
  const float* q;  // [head_dim][48]
  int rows;
};
// Where scratch.scores has the weight of row i and key j: at i * row + j * key.
struct WeightStrides {
  std::int64_t row = 1;
  std::int64_t key = kPanelRows;
};

// Recomputes the rows of scratch.partial that hold an infinity or NaN, from the keys each row sees alone: a
// hidden value must not matter, a visible infinity or NaN must come out as plain attention has it, and a
// finite sum beyond float32 is taken with weights scaled by 2^-16 (scratch.shift = 16). scratch.scores holds
// weights.
void repair_partial(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                    const RowKeys* seen, TileScratch& scratch, const WeightStrides& weights = {});

// Raises the panel's row references to the tile's, and gives the factor that brings the tile's partial to
// them.
void raise_references(std::byte* state, std::int64_t value_dim, const TileScratch& scratch, double* scale);
// The same for the online accumulator: factors for what is there and what arrives.
void rescale_online(std::byte* state, const TileScratch& scratch, float* keep, float* take);

// Moves one row's sums to a higher reference (panel.cc).
void raise_row(std::byte* state, std::int64_t value_dim, int lane, float reference);

double* panel_sums(std::byte* state);
float* panel_online_sums(std::byte* state);

}  // namespace kvring
