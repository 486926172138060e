// The arithmetic of the two matrix products, part of the numerical contract (docs/numerics.md).
#pragma once

#include "kvring/tensor.h"

namespace kvring {

enum class Products {
  kFloat32,  // inputs widened to float32, weights in float32, one chain a sum
  kBF16,     // queries, keys and values in bfloat16, weights rounded to it, sums in blocks of 32 terms
};

// kBF16 where queries, keys and values all are bfloat16.
constexpr Products products_of(DType q, DType kv) noexcept {
  return q == DType::kBF16 && kv == DType::kBF16 ? Products::kBF16 : Products::kFloat32;
}

}  // namespace kvring
