// What is asked: shapes, element types, mask and the numerical contract. A Problem is plain data, the
// same on every rank; nothing in it depends on the number of ranks or on who owns which token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvring/tensor.h"

namespace kvring {

// How partial results of key tiles are summed.
enum class Accumulation : std::uint8_t {
  kReproducible,  // order-independent: the same bits for every ring size, layout and schedule (default)
  kOnline,        // plain float32 rescaling: a quarter of the accumulator memory, bits depend on the order
};

struct Problem {
  std::int64_t batch = 1;
  std::int64_t q_len = 0;    // tokens, all documents together
  std::int64_t kv_len = 0;   // tokens, all documents together
  std::int64_t q_heads = 1;  // a multiple of kv_heads (GQA, MQA)
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;   // of q and k: 1 to 256
  std::int64_t value_dim = 0;  // of v and out: 1 to 256
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;  // k and v share it
  DType out_dtype = DType::kF32;

  std::optional<double> softmax_scale;  // default 1/sqrt(head_dim); -1e30 to 1e30
  double softcap = 0.0;  // logits become softcap * tanh(logit / softcap); 1e-30 to 1e30; 0 is off
  // Causal is bottom-right aligned: with lengths Lq and Lk (per document), query i sits at key position
  // i + Lk - Lq and sees keys up to and including it.
  bool causal = false;
  // A query at aligned position c sees keys c - window_left .. c + window_right; -1 is unlimited.
  // Intersects with causal.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  // Packed documents: both empty (one document), or both of documents + 1 entries that start at 0,
  // never fall and end at q_len / kv_len. Needs batch 1. A document may be empty on either side.
  std::vector<std::int64_t> cu_seqlens_q;
  std::vector<std::int64_t> cu_seqlens_kv;
  bool has_sinks = false;  // each call passes one float32 logit per query head

  // Part of the numerical contract: keys of one tile are summed as one chain. 1 to 32768;
  // at most 2^20 tiles per document.
  std::int64_t tile = 512;
  Accumulation accumulation = Accumulation::kReproducible;

  double scale() const;  // softmax_scale or its default
};

// Throws InvalidArgument or Unsupported, naming the value and what would work.
void validate(const Problem& problem);

// One parameter in canonical text, e.g. {"head_dim", "128"}. Two problems are the same exactly when all
// their fields are, so a mismatch between ranks can be named.
struct ProblemField {
  std::string name;
  std::string value;
};
std::vector<ProblemField> problem_fields(const Problem& problem);

// A 64-bit digest of problem_fields.
std::uint64_t problem_digest(const Problem& problem);

}  // namespace kvring
