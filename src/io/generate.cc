#include "io/generate.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "io/output.h"
#include "kvring/error.h"

namespace kvring {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr const char* kNames[3] = {"q", "k", "v"};

// What a counter is hashed for, so that no two uses see the same bits.
enum class Use : std::uint64_t { kElement, kRow, kHead, kDim };

XXH128_hash_t hash(const GenerateSpec& spec, Use use, int tensor, std::int64_t index) {
  const std::uint64_t counter[2] = {static_cast<std::uint64_t>(use) << 8 | static_cast<std::uint64_t>(tensor),
                                    static_cast<std::uint64_t>(index)};
  return XXH3_128bits_withSeed(counter, sizeof counter, spec.seed);
}

// Close to a normal deviate by the central limit theorem: 64 coins and two uniforms, of variance
// 16 + 1/6 together. Every step is exact or rounded once, so no libm can make a difference; the fourth
// moment is 2.97 (3 for a normal), the largest value 33 / sqrt(16 + 1/6).
double normal(XXH128_hash_t bits) {
  constexpr double kInverseDeviation = 0x1.fd5a9eebfd779p-3;  // 1 / sqrt(16 + 1/6)
  const double coins = std::popcount(bits.low64) - 32;
  const double uniforms =
      static_cast<double>((bits.high64 >> 32) + (bits.high64 & 0xffffffff)) * 0x1p-32 - 1.0;
  return (coins + uniforms) * kInverseDeviation;
}

// -20 to 20.
int exponent_of(std::uint64_t bits) { return static_cast<int>(bits % 41) - 20; }

double smallest_subnormal(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-24;
  return dtype == DType::kF32 ? 0x1p-149 : 0x1p-133;
}

double adversarial(const GenerateSpec& spec, int tensor, std::int64_t index) {
  const auto& shape = tensor == 0 ? spec.q_shape : spec.kv_shape;
  const std::int64_t dim = tensor == 2 ? spec.value_dim : shape[3];
  const std::int64_t row = index / dim;
  const std::int64_t column = index % dim;
  const XXH128_hash_t element = hash(spec, Use::kElement, tensor, index);
  const XXH128_hash_t row_bits = hash(spec, Use::kRow, tensor, row);
  const double sign = element.low64 & 1 ? -1.0 : 1.0;
  double value = normal(element);
  switch (row_bits.low64 % 16) {
    case 0:
    case 1:
      value = std::ldexp(value, exponent_of(row_bits.high64));
      break;
    case 2:
      return sign * smallest_subnormal(spec.dtype) * static_cast<double>(element.high64 % 128);
    case 3:
      return sign * 0.0;
    case 4:
    case 5:  // the same for all such rows of a head, so that their logits tie
      value = normal(hash(spec, Use::kHead, tensor, row % shape[2]));
      break;
    case 6:  // at the same dim in q and k: their product is a logit of some 1e7
      if (column == static_cast<std::int64_t>(hash(spec, Use::kHead, 3, 0).low64 >> 1) % dim) value *= 0x1p12;
      break;
    default:
      break;
  }
  if (tensor == 2) value = std::ldexp(value, exponent_of(hash(spec, Use::kDim, tensor, column).low64));
  return value;
}

void check(const GenerateSpec& spec) {
  const std::vector<std::int64_t> q(spec.q_shape.begin(), spec.q_shape.end());
  const std::vector<std::int64_t> kv(spec.kv_shape.begin(), spec.kv_shape.end());
  const auto positive = [](const std::vector<std::int64_t>& s) {
    return s[0] >= 1 && s[1] >= 0 && s[2] >= 1 && s[3] >= 1;  // a sequence may be empty
  };
  if (!positive(q) || !positive(kv) || spec.value_dim < 1)
    throw InvalidArgument(
        fmt::format("shape {}, kv shape {}, value dim {}: expected (batch, seqlen, heads, dim), "
                    "all at least 1 (seqlen may be 0)",
                    shape_text(q), shape_text(kv), spec.value_dim));
  if (q[0] != kv[0] || q[3] != kv[3])
    throw InvalidArgument(
        fmt::format("shape {} and kv shape {} must agree in batch and dim", shape_text(q), shape_text(kv)));
}

void store(void* buffer, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(buffer)[i] = value;
  } else {
    static_cast<std::uint16_t*>(buffer)[i] =
        dtype == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
  }
}

}  // namespace

float generated_value(const GenerateSpec& spec, int tensor, std::int64_t index) {
  if (spec.kind == GenerateKind::kNormal)
    return static_cast<float>(normal(hash(spec, Use::kElement, tensor, index)));
  const auto value = static_cast<float>(adversarial(spec, tensor, index));
  return spec.dtype == DType::kF16 ? std::clamp(value, -65504.0f, 65504.0f) : value;
}

void generate(const GenerateSpec& spec, const std::string& path,
              const std::function<void(double)>& progress) {
  check(spec);
  if (file_format(path) != FileFormat::kSafetensors)
    throw InvalidArgument(
        fmt::format("{}: q, k and v go into one file; its name must end in .safetensors", path));
  std::vector<TensorSpec> tensors;
  double total = 0;
  for (int t = 0; t < 3; ++t) {
    const auto& shape = t == 0 ? spec.q_shape : spec.kv_shape;
    tensors.push_back(
        {kNames[t], spec.dtype, {shape[0], shape[1], shape[2], t == 2 ? spec.value_dim : shape[3]}});
  }
  OutputFile output = OutputFile::create(path, tensors);
  const auto element = static_cast<std::int64_t>(dtype_bytes(spec.dtype));
  for (const TensorSpec& tensor : tensors)
    total += static_cast<double>(*checked_bytes(tensor.shape, element));

  std::vector<std::uint32_t> buffer(kPieceBytes / sizeof(std::uint32_t));
  double done = 0;
  for (int t = 0; t < 3; ++t) {
    const std::int64_t elements = *checked_bytes(tensors[t].shape, element) / element;
    for (std::int64_t first = 0; first < elements;) {
      const std::int64_t count = std::min(kPieceBytes / element, elements - first);
      for (std::int64_t i = 0; i < count; ++i)
        store(buffer.data(), spec.dtype, i, generated_value(spec, t, first + i));
      output.write_elements(kNames[t], first, count, buffer.data());
      first += count;
      done += static_cast<double>(count * element);
      if (progress) progress(done / total);
    }
  }
  output.commit();
}

}  // namespace kvring
