#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kvring/error.h"
#include "kvring/tensor.h"

namespace kvring {
namespace {

// Rounds to the nearest value with `bits` of precision and a smallest exponent of `min_exponent` (the
// weight of a subnormal's last place), ties to even; exact in double because bits < 53.
double round_to_precision(double value, int bits, int min_exponent) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
  if (value == 0 || exponent > 128) return value;  // or beyond every float, infinite, NaN
  const int last_place = std::max(exponent - (bits - 1), min_exponent);
  // The sum with 1.5 * 2^52 units lands where one unit is the last place; both steps are exact or rounded
  // once.
  const double unit = std::bit_cast<double>(static_cast<std::uint64_t>(last_place + 1023) << 52);
  const double magic = 0x1.8p52 * unit;
  return (value + magic) - magic;
}

}  // namespace

std::size_t dtype_bytes(DType dtype) noexcept { return dtype == DType::kF32 ? 4 : 2; }

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "?";
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw InvalidArgument("dtype '" + std::string(name) + "' is not one of f32, bf16, f16");
}

float bf16_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float f16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31;
  const std::uint32_t mantissa = bits & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 1u << 22 : 0));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

std::uint16_t float_to_f16(float value) noexcept {
  const auto sign = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = round_to_precision(std::fabs(static_cast<double>(value)), 11, -24);
  if (magnitude >= 65536.0) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<int>(magnitude * 0x1p24));
  // Exact by now: the exponent changes its bias, the mantissa loses zeros.
  const auto wide = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
  return static_cast<std::uint16_t>(sign | (wide - (112u << 23)) >> 13);
}

float load_element(const void* data, DType dtype, std::int64_t index) noexcept {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

void store_element(void* data, DType dtype, std::int64_t index, double value) noexcept {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    // Rounded in double first, so the narrowing below is exact (or overflows to infinity, as it should).
    case DType::kBF16:
      static_cast<std::uint16_t*>(data)[index] =
          float_to_bf16(static_cast<float>(round_to_precision(value, 8, -133)));
      return;
    case DType::kF16:
      static_cast<std::uint16_t*>(data)[index] =
          float_to_f16(static_cast<float>(round_to_precision(value, 11, -24)));
      return;
  }
}

}  // namespace kvring
