// Element types and strided views. A view owns nothing and never frees; copying one is cheap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvring {

enum class DType : std::uint8_t { kF32, kBF16, kF16 };

// Bytes of one element: 4, 2, 2.
std::size_t dtype_bytes(DType dtype) noexcept;
// "f32", "bf16", "f16".
std::string_view dtype_name(DType dtype) noexcept;
// The inverse of dtype_name. Throws InvalidArgument naming the text and the three that exist.
DType parse_dtype(std::string_view name);

// A 4-d view of shape (batch, seqlen, heads, dim), as FlashAttention lays tensors out. Strides count
// elements, not bytes, and may be any non-negative value for batch, seqlen and heads; the last
// dimension is contiguous (stride 1). All index arithmetic is 64-bit.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};

  std::int64_t elements() const noexcept { return shape[0] * shape[1] * shape[2] * shape[3]; }
  // Offset in elements of row (b, s, h), dim 0.
  std::int64_t offset(std::int64_t b, std::int64_t s, std::int64_t h) const noexcept {
    return b * stride[0] + s * stride[1] + h * stride[2];
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// A row-major view over a dense buffer.
template <typename Void>
BasicTensorView<Void> dense_view(Void* data, DType dtype, std::array<std::int64_t, 4> shape) {
  return {data, dtype, shape, {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
}

inline ConstTensorView as_const(const TensorView& t) { return {t.data, t.dtype, t.shape, t.stride}; }

// The logsumexp of each row, natural logarithm, shape (batch, heads, seqlen), float32. Strides count
// elements.
struct LseView {
  float* data = nullptr;
  std::array<std::int64_t, 3> shape{};
  std::array<std::int64_t, 3> stride{};

  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t s) const noexcept {
    return b * stride[0] + h * stride[1] + s * stride[2];
  }
};

inline LseView dense_lse_view(float* data, std::array<std::int64_t, 3> shape) {
  return {data, shape, {shape[1] * shape[2], shape[2], 1}};
}

// Conversions, round to nearest even; NaN stays NaN (quieted, payload may change), subnormals are kept.
float bf16_to_float(std::uint16_t bits) noexcept;
std::uint16_t float_to_bf16(float value) noexcept;
float f16_to_float(std::uint16_t bits) noexcept;
std::uint16_t float_to_f16(float value) noexcept;

// One element of any dtype, widened.
float load_element(const void* data, DType dtype, std::int64_t index) noexcept;
// One element of any dtype, rounded once from double to nearest even (no double rounding through float).
void store_element(void* data, DType dtype, std::int64_t index, double value) noexcept;

}  // namespace kvring
