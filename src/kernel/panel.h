// Attention state of a panel of 48 query rows: what RowAccumulator is for one row, laid out for vectors.
//
// Reproducible: float reference[48], then [value_dim + 1][hi, lo][48] doubles (the last element is the
// sum of weights). Online: float m[48], then [value_dim + 1][48] floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/tile.h"
#include "kvring/problem.h"

namespace kvring {

// Bytes of one panel's state, a multiple of 64.
std::int64_t panel_bytes(std::int64_t value_dim, Accumulation accumulation);

void panel_init(std::byte* state, std::int64_t value_dim, Accumulation accumulation);

// Adds the partial of other keys of the same rows: exact, in any order (reproducible), or in float32
// (online).
void panel_merge(std::byte* into, const std::byte* from, std::int64_t value_dim, Accumulation accumulation);

// One finished row. `row` is 0..47; sink as in RowAccumulator::finish; `out` gets value_dim elements of
// `dtype` starting at element `offset`. Returns the natural-log LSE. NaN is canonical.
struct RowOut {
  void* data;
  DType dtype;
  std::int64_t offset;
};
float panel_finish_row(const std::byte* state, std::int64_t value_dim, Accumulation accumulation, int row,
                       float sink, const RowOut& out);

}  // namespace kvring
