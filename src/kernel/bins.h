// Constants of the order-independent sum (include/kvring/partial.h), shared by the scalar and the vector
// code.
#pragma once

#include <cstdint>

namespace kvring {

// A bin is 32 binary digits. Bin b has unit u = 2^(32 (b - 1)) and takes terms below 2^31 u, so a slice
// has at most 31 bits and 2^20 of them stay below the 2^51 units that the primed hi can hold.
inline constexpr int kBinDigits = 32;
// hi = 1.5 * kUnitsInExponent units + slices: the exponent of hi is that of kUnitsInExponent units.
inline constexpr double kUnitsInExponent = 0x1p52;
// A term of the same bin is below (exponent part of hi) * kLimit = 2^31 units.
inline constexpr double kLimit = 0x1p-21;
inline constexpr double kBinRatio = 0x1p-32;  // unit of the bin below
inline constexpr std::uint64_t kExponentBits = 0x7ff0000000000000u;
inline constexpr std::uint64_t kHalfBit = 0x0008000000000000u;  // turns 2^e into 1.5 * 2^e

// Weights below these powers of two are 0. In the bfloat16 products that keeps products of weights and values
// out of the subnormal numbers where values are not tiny, see is_tiny().
inline constexpr float kLowestWeight = -126.0f;
inline constexpr float kLowestBf16Weight = -55.5f;

// The lowest bin, -6: its unit is 2^-224, the one below 2^-256. A finished row divides by a denominator of
// at least 2^-33, so what is dropped is below 2^-223, far under the smallest float32 (2^-149).
inline constexpr double kLowestExponentPart = 0x1p-172;  // 2^52 units of bin -6

// Row references are multiples of the bin, so that changing one moves whole bins.
inline constexpr float kReferenceStep = 32.0f;
// Tiles this far below the reference (in binary digits) round to nothing in every bin; those further below
// are taken as if they were 2^-500 of it: with 0, an infinite value would become NaN.
inline constexpr float kNegligible = 420.0f;
inline constexpr double kNegligibleScale = 0x1p-500;
// Moving the reference by more than this empties every bin.
inline constexpr double kClearingStep = 512.0;

}  // namespace kvring
