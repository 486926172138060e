// exp2 and log2 in float64 from basic operations alone, so that every machine gets the same bits: libm
// differs between systems in the last place.
#pragma once

#include <bit>
#include <cstdint>

namespace kvring {

inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.6931471805599453;

// 2^n as a double, n in [-1022, 1023].
inline double power_of_two(std::int64_t n) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// 2^x for x <= 1000; 0 below -1000. Relative error below 2^-50.
inline double exp2_f64(double x) noexcept {
  if (!(x >= -1000.0)) return x != x ? x : 0.0;
  const double magic = 0x1.8p52;
  const double n = (x + magic) - magic;
  const double y = (x - n) * kLn2;  // |y| <= 0.35: the Taylor series to degree 14 is below 2^-57
  double p = 1.0;
  for (int k = 14; k >= 1; --k) p = 1.0 + p * y / k;
  return p * power_of_two(static_cast<std::int64_t>(n));
}

// log2 of a positive normal double. Absolute error below 2^-48.
inline double log2_f64(double x) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh((m - 1) / (m + 1)); |f| <= 0.172, f^25 is below 2^-60.
  const double f = (mantissa - 1.0) / (mantissa + 1.0);
  const double f2 = f * f;
  double series = 0.0;
  for (int k = 23; k >= 1; k -= 2) series = 1.0 / k + f2 * series;
  return static_cast<double>(exponent) + 2.0 * kLog2E * (f * series);
}

}  // namespace kvring
