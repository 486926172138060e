// What the kernel's buffers take. The kernel lays its memory out by these formulas and the planner prices
// them, so they stand above both.
#pragma once

#include <cstdint>

#include "kvring/problem.h"
#include "problem/products.h"

namespace kvring {

// Query rows side by side in the lanes: 3 vectors of AVX-512, 6 of AVX2, 12 of NEON. A register tile of 8 x 3
// vectors fills 24 accumulators of 32 (4 x 3 of 16 on AVX2), enough to cover two FMA ports x 4 cycles.
inline constexpr int kPanelRows = 48;

// Columns of a block matrix (kernel/blocks.h).
inline constexpr std::int64_t kBlockWidth = 32;

// Bytes of one panel's accumulators, a multiple of 64.
std::int64_t panel_bytes(std::int64_t value_dim, Accumulation accumulation) noexcept;

// Bytes that the packed rows of a panel may take.
std::int64_t query_bytes(Products products, std::int64_t head_dim) noexcept;

// What decides the working memory of one thread.
struct TileDims {
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t max_keys = 0;
  DType kv_dtype = DType::kF32;
  Products products = Products::kFloat32;
};
TileDims tile_dims(const Problem& problem);

// From one row of weights to the next where few rows are attended.
std::int64_t few_stride(std::int64_t max_keys) noexcept;

// The arrays of TileScratch (kernel/tile.h), in floats.
struct ScratchSizes {
  std::int64_t k, v, q, scores, weights, partial;
  explicit ScratchSizes(const TileDims& dims);
  std::int64_t bytes() const noexcept;
};

}  // namespace kvring
