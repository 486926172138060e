#include "problem/kernel_sizes.h"

#include <algorithm>

#include "tensor/buffer.h"

namespace kvring {

std::int64_t panel_bytes(std::int64_t value_dim, Accumulation accumulation) noexcept {
  const std::int64_t element =
      accumulation == Accumulation::kReproducible ? 2 * sizeof(double) : sizeof(float);
  return kPanelRows * (static_cast<std::int64_t>(sizeof(float)) + (value_dim + 1) * element);
}

std::int64_t query_bytes(Products products, std::int64_t head_dim) noexcept {
  const std::int64_t floats = head_dim * kPanelRows * 4;
  if (products == Products::kFloat32) return floats;
  return std::max(floats, round_up(head_dim, kBlockWidth) * kPanelRows * 2);
}

TileDims tile_dims(const Problem& p) {
  return {p.head_dim, p.value_dim, std::min(p.tile, std::max<std::int64_t>(p.kv_len, 1)), p.kv_dtype,
          products_of(p.q_dtype, p.kv_dtype)};
}

std::int64_t few_stride(std::int64_t max_keys) noexcept { return round_up(max_keys, 16); }

ScratchSizes::ScratchSizes(const TileDims& d) {
  const bool widened = d.kv_dtype != DType::kF32;
  k = widened ? round_up(d.max_keys * d.head_dim, 16) : 0;
  v = widened ? round_up(d.max_keys * d.value_dim, 16) : 0;
  const bool blocks = d.products == Products::kBF16;
  q = blocks ? d.head_dim * kPanelRows : 0;
  scores = few_stride(d.max_keys) * kPanelRows;
  weights = blocks ? round_up(d.max_keys, kBlockWidth) * kPanelRows / 2 : 0;
  partial = (d.value_dim + 1) * kPanelRows;
}

std::int64_t ScratchSizes::bytes() const noexcept {
  return (k + v + q + scores + weights + partial + 4 * kPanelRows) * std::int64_t{sizeof(float)};
}

}  // namespace kvring
