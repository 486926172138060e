// What a whole model takes on each device beside attention: a floor that a longer ring lowers little or not
// at all.
#pragma once

#include "planner/workload.h"
#include "schedule/memory.h"

namespace kvring {

// Parameters of a decoder with gated feed-forward blocks and separate input and output embeddings.
std::int64_t count_params(const Workload& whole);

// Of one device that holds `tokens` of each batch entry. Names: weights; gradients and optimizer in training
// (Adam; with 16-bit weights a float32 copy of them too); activations (the input of every layer in training,
// of one otherwise, and one copy of it at work); kv_cache without training (the layers that are not being
// attended).
struct ModelCase {
  const Workload& whole;
  const Workload& share;  // of one ring, see ring_share()
  const Mesh& mesh;
  int ranks;
  std::int64_t tokens;
  std::int64_t kv_tokens;
};
Ledger model_memory(const ModelCase& c);

}  // namespace kvring
