// Synthetic q, k and v, streamed to disk: the same spec gives the same file on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "kvring/tensor.h"

namespace kvring {

enum class GenerateKind : std::uint8_t {
  kNormal,  // independent, mean 0, variance 1, bounded by 8.23
  // Finite, and hard on softmax: rows scaled by up to 2^20 either way, subnormals, signed zeros, rows of
  // one repeated value (equal logits), single outliers that make logits of 1e7, dims of v scaled by 2^-20
  // to 2^20 (what f16 cannot carry is cut to its largest finite value). Most rows stay normal.
  kAdversarial,
};

struct GenerateSpec {
  std::array<std::int64_t, 4> q_shape{};   // (batch, seqlen, heads, head_dim)
  std::array<std::int64_t, 4> kv_shape{};  // of k; batch and head_dim are those of q
  std::int64_t value_dim = 0;              // of v
  DType dtype = DType::kF32;
  std::uint64_t seed = 0;
  GenerateKind kind = GenerateKind::kNormal;
};

// Element `index` (row-major) of tensor 0 (q), 1 (k) or 2 (v): a pure function of its arguments, in
// integer and correctly rounded float arithmetic alone.
float generated_value(const GenerateSpec& spec, int tensor, std::int64_t index);

// Writes tensors q, k and v to a .safetensors file through a buffer of 1 MiB. `progress`, when set, is
// called with the fraction done, from above 0 to 1; when it throws, no file is left. Throws
// InvalidArgument for a spec that makes no sense and as OutputFile does.
void generate(const GenerateSpec& spec, const std::string& path,
              const std::function<void(double)>& progress = {});

}  // namespace kvring
