// Attention state of a panel of 48 query rows: what RowAccumulator is for one row, laid out for vectors.
//
// Reproducible: float reference[48], then [value_dim + 1][hi, lo][48] doubles (the last element is the
// sum of weights). Online: float m[48], then [value_dim + 1][48] floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/tile.h"
#include "kvring/problem.h"
#include "problem/kernel_sizes.h"

namespace kvring {

void panel_init(std::byte* state, std::int64_t value_dim, Accumulation accumulation);

// Adds the partial of other keys of the same rows: exact, in any order (reproducible), or in float32
// (online).
void panel_merge(std::byte* into, const std::byte* from, std::int64_t value_dim, Accumulation accumulation);

// Finished rows. `rows` are the first of the panel; row i goes to out[i], value_dim elements of `dtype`, and
// its natural-log LSE to lse[i]. NaN is canonical. `scratch` takes value_dim * 48 floats, aligned to 64.
struct FinishRow {
  void* data;
  std::int64_t offset;  // in elements
  float sink;           // as in RowAccumulator::finish
};
void panel_finish(const std::byte* state, std::int64_t value_dim, Accumulation accumulation, DType dtype,
                  std::span<const FinishRow> rows, float* lse, float* scratch);

// Where things lie in a state.
struct PanelState {
  const float* reference;
  const double* binned;  // or
  const float* online;
  std::int64_t value_dim;
  Accumulation accumulation;
};

}  // namespace kvring
