// The tensors of one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvring/problem.h"
#include "kvring/tensor.h"

namespace kvring {

// Keys and values that a rank keeps packed: of every KV unit the pieces of its shard, one after the other,
// and `unit_bytes` from one unit to the next.
struct PackedKeys {
  const std::byte* data = nullptr;
  std::int64_t unit_bytes = 0;
};

struct RankTensors {
  ConstTensorView q, k, v;
  TensorView out;
  LseView lse;             // null data: not wanted
  const float* sinks;      // by query head, or null
  PackedKeys packed = {};  // in place of k and v, where it has data
};

// Throws InvalidArgument, naming the tensor and what it must be, unless the tensors are those of the problem
// with q_tokens queries and kv_tokens keys at hand.
void check_tensors(const Problem& problem, std::int64_t q_tokens, std::int64_t kv_tokens,
                   const RankTensors& tensors);

}  // namespace kvring
