#include "kernel/repair.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/blocks.h"
#include "kernel/pack.h"
#include "kernel/row_finish.h"

namespace kvring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// 2^15 keys of the largest tile times the largest float32 stay finite when weights, at most 1, are this much
// smaller.
constexpr int kOverflowShift = 16;

// The sum of a(t) * b(t) over begin <= t < end as the products take it, rounding by rounding.
template <class A, class B>
float product_sum(Products products, std::int64_t begin, std::int64_t end, const A& a, const B& b) {
  float sum = 0;
  if (products == Products::kFloat32) {
    for (std::int64_t t = begin; t < end; ++t) sum = std::fma(a(t), b(t), sum);
    return sum;
  }
  for (std::int64_t block = begin / kBlockWidth * kBlockWidth; block < end; block += kBlockWidth) {
    float part[2] = {0, 0};
    for (std::int64_t t = std::max(begin, block); t < std::min(end, block + kBlockWidth); ++t) {
      float& chain = part[(t - block) % 2];
      chain = std::fma(a(t), b(t), chain);
    }
    sum += part[0] + part[1];
  }
  return sum;
}

// One row of a panel in a tile.
struct Row {
  const TileShape& shape;
  const PackedFloats& tile;
  const float* q;        // of the panel
  const float* weights;  // of this row
  std::int64_t from_key_to_key;
  int lane;
  std::int64_t begin, end;  // keys it sees

  float weight(std::int64_t key) const { return weights[key * from_key_to_key]; }

  float value(std::int64_t key, std::int64_t dim) const {
    if (shape.products == Products::kBF16)
      return BlockMatrix<const float>{tile.v, shape.value_dim, tile.keys}.at(dim, key);
    return in_groups(tile.v, dim, shape.value_dim, key, tile.keys);
  }
  float key(std::int64_t key, std::int64_t dim) const {
    if (shape.products == Products::kBF16)
      return BlockMatrix<const float>{tile.k, tile.keys, shape.head_dim}.at(key, dim);
    return in_groups(tile.k, key, tile.keys, dim, shape.head_dim);
  }
  // Element (i of rows, t of terms) of [rows / 8][terms][8].
  static float in_groups(const float* data, std::int64_t i, std::int64_t rows, std::int64_t t,
                         std::int64_t terms) {
    const std::int64_t group = i / kGroup * kGroup;
    return data[group * terms + t * std::min<std::int64_t>(kGroup, rows - group) + (i - group)];
  }

  // A weight that is zero because the logit is -inf, not because it is too small for float32.
  bool weightless(std::int64_t at) const {
    if (shape.logits.cap != 0) return false;
    const float dot = product_sum(
        shape.products, 0, shape.head_dim, [&](std::int64_t d) { return key(at, d); },
        [&](std::int64_t d) { return q[d * kPanelRows + lane]; });
    return dot * shape.logits.scale == -kInfinity;
  }
};

// What infinite and NaN values make of the sum; 0 when there are none.
float special_sum(const Row& row, std::int64_t dim) {
  float sum = 0;
  for (std::int64_t key = row.begin; key < row.end; ++key) {
    const float v = row.value(key, dim);
    if (!std::isfinite(v)) sum += row.weightless(key) ? kNaN : v;
  }
  return sum;
}

float finite_sum(const Row& row, std::int64_t dim, float weight_scale) {
  return product_sum(
      row.shape.products, row.begin, row.end,
      [&](std::int64_t key) {
        const float v = row.value(key, dim);
        return std::isfinite(v) ? v : 0.0f;
      },
      [&](std::int64_t key) { return row.weight(key) * weight_scale; });
}

void repair_row(const Row& row, TileScratch& scratch) {
  const std::int64_t dims = row.shape.value_dim;
  const auto at = [&](std::int64_t dim) -> float& { return scratch.partial[dim * kPanelRows + row.lane]; };
  float& sum_of_weights = at(dims);
  if (sum_of_weights != sum_of_weights) return;  // a NaN weight: NaN everywhere already, or must be
  bool overflow = false;
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    at(dim) = finite_sum(row, dim, 1.0f);
    overflow |= !std::isfinite(at(dim));
  }
  if (overflow) {
    const float scale = std::ldexp(1.0f, -kOverflowShift);
    for (std::int64_t dim = 0; dim < dims; ++dim) at(dim) = finite_sum(row, dim, scale);
    sum_of_weights *= scale;
    scratch.shift[row.lane] = kOverflowShift;
  }
  for (std::int64_t dim = 0; dim < dims; ++dim) at(dim) += special_sum(row, dim);
}

float* references(std::byte* state) { return reinterpret_cast<float*>(state); }

}  // namespace

KeyRange panel_hull(const RowKeys& rows, std::int64_t keys, std::int64_t step) {
  std::int64_t begin = keys, end = 0;
  for (int i = 0; i < kPanelRows; ++i) {
    if (rows.begin[i] >= rows.end[i]) continue;
    begin = std::min<std::int64_t>(begin, rows.begin[i]);
    end = std::max<std::int64_t>(end, rows.end[i]);
  }
  if (begin >= end) return {0, 0};
  return {begin / step * step, std::min(round_up(end, step), keys)};
}

void repair_partial(const TileShape& shape, const PackedFloats& tile, const FloatPanel& panel,
                    const RowKeys* seen, TileScratch& scratch, const WeightStrides& weights) {
  std::fill_n(scratch.shift, kPanelRows, 0);
  for (int lane = 0; lane < panel.rows; ++lane) {
    bool finite = true;
    for (std::int64_t dim = 0; dim < shape.value_dim; ++dim) {
      finite &= std::isfinite(scratch.partial[dim * kPanelRows + lane]);
    }
    if (finite) continue;
    const std::int64_t begin = seen ? seen->begin[lane] : 0;
    const std::int64_t end = seen ? seen->end[lane] : tile.keys;
    repair_row({shape, tile, panel.q, scratch.scores + lane * weights.row, weights.key, lane, begin, end},
               scratch);
  }
}

double* panel_sums(std::byte* state) { return reinterpret_cast<double*>(state + kPanelRows * sizeof(float)); }
float* panel_online_sums(std::byte* state) { return references(state) + kPanelRows; }

void raise_references(std::byte* state, std::int64_t value_dim, const TileScratch& scratch, double* scale) {
  float* reference = references(state);
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const float m = scratch.tile_max[lane];
    const float raised = row_reference(m);
    if (raised > reference[lane]) {
      raise_row(state, value_dim, lane, raised);
      reference[lane] = raised;
    }
    scale[lane] = tile_scale(m, scratch.shift[lane], reference[lane]);
  }
}

void rescale_online(std::byte* state, const TileScratch& scratch, float* keep, float* take) {
  float* top = references(state);
  for (int lane = 0; lane < kPanelRows; ++lane) {
    // With the shift inside: m + shift is exact while it matters, and online bits are not promised.
    const float m = scratch.tile_max[lane] + static_cast<float>(scratch.shift[lane]);
    const float raised = std::max(top[lane], m);
    keep[lane] = online_factor(top[lane], raised);
    take[lane] = online_factor(m, raised);
    top[lane] = raised;
  }
}

}  // namespace kvring
