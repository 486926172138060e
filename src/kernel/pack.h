// A block as it travels and as the kernel reads it: the K and V of one shard for some KV heads, tile by tile,
// in the storage type, with no padding.
//
// For the float32 products both are packed in groups of 8 with the reduction index outside, so that one
// micro-kernel serves scores (8 keys, sum over dims) and values (8 dims, sum over keys) and reads each group
// front to back:
//   K of a tile: [keys / 8][head_dim][8], the last group keys % 8 wide
//   V of a tile: [value_dim / 8][keys][8], the last group value_dim % 8 wide
// For the bfloat16 products both are block matrices (blocks.h) with the reduction index in the row, as matrix
// units take them: K is keys x head_dim, V is value_dim x keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvring/tensor.h"
#include "problem/kernel_sizes.h"
#include "problem/products.h"

namespace kvring {

inline constexpr int kGroup = 8;

struct PackedTile {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::int64_t keys = 0;
};

// Packs rows [first, first + keys) of one head. `source` rows are (batch b, local row s, head h).
struct HeadRows {
  const ConstTensorView* tensor;
  std::int64_t b, h, first, rows;
};
void pack_keys(Products products, const HeadRows& source, std::byte* to);
void pack_values(Products products, const HeadRows& source, std::byte* to);

// Up to 48 query rows, packed for the instruction set in use.
struct PackedQueries {
  const std::byte* data =
      nullptr;  // float32 [head_dim][48], or for the matrix unit bfloat16
                // [head_dim / 32][3][16][16][2] (block of dims, vector, pair, row, parity)
  int rows = 0;
  bool tiny = false;  // some value is not 0 and below 2^-56: products may be subnormal, which the matrix unit
                      // takes for 0
};
// Where the matrix unit's packing has term t (a dim, or a key of the tile) of a row in the lanes.
constexpr std::int64_t pair_index(std::int64_t t, std::int64_t row) noexcept {
  return (((t / 32 * 3 + row / 16) * 16 + t % 32 / 2) * 16 + row % 16) * 2 + t % 2;
}
// row_offsets[i] is the element offset of row i in `tensor`. Lanes without a row are 0. `to` is aligned
// to 64.
PackedQueries pack_queries(Products products, const ConstTensorView& tensor, const std::int64_t* row_offsets,
                           int rows, std::byte* to);

}  // namespace kvring
