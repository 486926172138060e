// Random problems, inputs and expected rows for tests: the same seed gives the same everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kvring/problem.h"
#include "kvring/tensor.h"
#include "reference/reference.h"

namespace kvring::test {

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // low <= result <= high
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double normal() {                                                         // Box and Muller
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

// A dense tensor that owns its memory. Starts poisoned: every element is NaN.
class OwnedTensor {
 public:
  OwnedTensor(DType dtype, std::array<std::int64_t, 4> shape) : dtype_(dtype), shape_(shape) {
    bytes_.resize(static_cast<std::size_t>(std::as_const(*this).view().elements()) * dtype_bytes(dtype));
    poison();
  }
  TensorView view() { return dense_view<void>(bytes_.data(), dtype_, shape_); }
  ConstTensorView view() const { return dense_view<const void>(bytes_.data(), dtype_, shape_); }
  void poison() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff}); }  // a NaN in every dtype
  friend bool operator==(const OwnedTensor&, const OwnedTensor&) = default;    // the same bits

 private:
  DType dtype_;
  std::array<std::int64_t, 4> shape_;
  std::vector<std::byte> bytes_;
};

enum class Fill {
  kNormal,       // mean 0, deviation 1
  kAdversarial,  // mixes deviations of 2^-20 to 2^10 per row and per dim with zeros and subnormals; finite
};

inline void fill(Rng& rng, const TensorView& t, Fill kind) {
  std::vector<double> dim_scale(static_cast<std::size_t>(t.shape[3]), 1.0);
  const bool adversarial = kind == Fill::kAdversarial;
  const double tiny = t.dtype == DType::kF16 ? 0x1p-24 : t.dtype == DType::kBF16 ? 0x1p-133 : 0x1p-149;
  if (adversarial) {
    for (double& scale : dim_scale) scale = std::ldexp(1.0, static_cast<int>(rng.between(-10, 5)));
  }
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t s = 0; s < t.shape[1]; ++s)
      for (std::int64_t h = 0; h < t.shape[2]; ++h) {
        const double row_scale = adversarial ? std::ldexp(1.0, static_cast<int>(rng.between(-10, 5))) : 1.0;
        for (std::int64_t d = 0; d < t.shape[3]; ++d) {
          double value = rng.normal() * row_scale * dim_scale[static_cast<std::size_t>(d)];
          if (adversarial && rng.chance(0.05)) value = rng.chance(0.5) ? 0.0 : -3 * tiny;
          store_element(t.data, t.dtype, t.offset(b, s, h) + d, value);
        }
      }
}

// A length from 0 to `most`, with 0 and 1 more often than by chance.
inline std::int64_t random_length(Rng& rng, std::int64_t most) {
  if (rng.chance(0.1)) return rng.between(0, std::min<std::int64_t>(1, most));
  return rng.between(0, most);
}

// `documents` + 1 borders of documents of random lengths, some empty; the last is the number of tokens.
inline std::vector<std::int64_t> random_cu_seqlens(Rng& rng, std::int64_t documents, std::int64_t most) {
  std::vector<std::int64_t> borders = {0};
  for (std::int64_t i = 0; i < documents; ++i)
    borders.push_back(borders.back() + (rng.chance(0.2) ? 0 : rng.between(0, most)));
  return borders;
}

// A valid problem with random lengths (each side at most `most` tokens), documents, mask and tile; small
// heads and dims; everything else at its default.
inline Problem random_masked_problem(Rng& rng, std::int64_t most) {
  Problem p;
  p.q_len = random_length(rng, most);
  p.kv_len = rng.chance(0.5) ? p.q_len : random_length(rng, most);
  p.head_dim = rng.between(1, 5);
  p.value_dim = rng.between(1, 5);
  if (rng.chance(0.4)) {
    const std::int64_t documents = rng.between(1, 6);
    p.cu_seqlens_q = random_cu_seqlens(rng, documents, most / documents);
    p.cu_seqlens_kv = rng.chance(0.5) ? p.cu_seqlens_q : random_cu_seqlens(rng, documents, most / documents);
    p.q_len = p.cu_seqlens_q.back();
    p.kv_len = p.cu_seqlens_kv.back();
  }
  p.causal = rng.chance(0.5);
  if (rng.chance(0.4)) p.window_left = rng.between(-1, rng.chance(0.5) ? 3 : most);
  if (rng.chance(0.4)) p.window_right = rng.between(-1, rng.chance(0.5) ? 3 : most);
  p.tile = rng.between(1, 8);
  return p;
}

// A problem in words, for failure messages.
inline std::string describe(const Problem& problem) {
  std::string text;
  for (const ProblemField& field : problem_fields(problem)) text += field.name + '=' + field.value + ' ';
  return text;
}

// The inputs of one call.
struct Inputs {
  OwnedTensor q, k, v;
  std::vector<float> sinks;  // empty: none
  const float* sinks_data() const { return sinks.empty() ? nullptr : sinks.data(); }
};

inline Inputs random_inputs(Rng& rng, const Problem& p, Fill kind = Fill::kNormal) {
  Inputs in{OwnedTensor(p.q_dtype, {p.batch, p.q_len, p.q_heads, p.head_dim}),
            OwnedTensor(p.kv_dtype, {p.batch, p.kv_len, p.kv_heads, p.head_dim}),
            OwnedTensor(p.kv_dtype, {p.batch, p.kv_len, p.kv_heads, p.value_dim}),
            {}};
  fill(rng, in.q.view(), kind);
  fill(rng, in.k.view(), kind);
  fill(rng, in.v.view(), kind);
  if (p.has_sinks) {
    for (std::int64_t h = 0; h < p.q_heads; ++h) in.sinks.push_back(static_cast<float>(rng.normal()));
  }
  return in;
}

// Every row of the float64 reference, in the order (b, s, h).
inline std::vector<ReferenceRow> reference_rows(const Problem& p, const Inputs& in) {
  std::vector<ReferenceRow> rows;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t s = 0; s < p.q_len; ++s)
      for (std::int64_t h = 0; h < p.q_heads; ++h)
        rows.push_back(reference_row(p, in.q.view(), in.k.view(), in.v.view(), in.sinks_data(), b, s, h));
  return rows;
}

}  // namespace kvring::test
