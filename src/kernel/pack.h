// A block as it travels and as the kernel reads it: the K and V of one shard for some KV heads, tile by tile,
// in the storage type, with no padding.
//
// Both are packed in groups of 8 with the reduction index outside, so that one micro-kernel serves scores (8
// keys, sum over dims) and values (8 dims, sum over keys) and reads each group front to back:
//   K of a tile: [keys / 8][head_dim][8], the last group keys % 8 wide
//   V of a tile: [value_dim / 8][keys][8], the last group value_dim % 8 wide
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvring/tensor.h"

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
void pack_keys(const HeadRows& source, std::byte* to);
void pack_values(const HeadRows& source, std::byte* to);

// Query rows into the lanes: to[d][48] float32, d < dim; lanes without a row are 0. rows[i] is the element
// offset of row i in `tensor`.
void pack_queries(const ConstTensorView& tensor, const std::int64_t* row_offsets, int rows, float* to);

}  // namespace kvring
