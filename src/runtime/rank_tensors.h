// The tensors of one call.
#pragma once

#include <cstdint>

#include "kvring/problem.h"
#include "kvring/tensor.h"

namespace kvring {

struct RankTensors {
  ConstTensorView q, k, v;
  TensorView out;
  LseView lse;         // null data: not wanted
  const float* sinks;  // by query head, or null
};

// Throws InvalidArgument, naming the tensor and what it must be, unless the tensors are those of the problem
// with q_tokens queries and kv_tokens keys at hand.
void check_tensors(const Problem& problem, std::int64_t q_tokens, std::int64_t kv_tokens,
                   const RankTensors& tensors);

}  // namespace kvring
