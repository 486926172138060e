// How a row's tiles are put on a common scale, and how a finished row becomes output and LSE. One set of
// formulas for the scalar and the vector accumulators.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "kernel/bins.h"
#include "kernel/scalar_math.h"

namespace kvring {

// A row that saw keys, all with weight zero (logit -inf), has this reference: it is no empty row.
inline constexpr float kSawOnlyZeroWeights = std::numeric_limits<float>::lowest();

// The smallest multiple of 32 that is >= m. Exact for every float: beyond 2^29 all floats are multiples.
inline float row_reference(float m) noexcept {
  if (std::fabs(m) >= 0x1p29f) return m;
  // Between -32 and 0 that would be -0, and the state's bits would tell which tile came first.
  return std::ceil(m / kReferenceStep) * kReferenceStep + 0.0f;
}

// Weights of a tile are relative to 2^(m + shift); sums are relative to 2^reference. Exact, or so small that
// nothing finite reaches any bin.
inline double tile_scale(float m, int shift, float reference) noexcept {
  const float below = reference - m;
  if (!(below <= kNegligible)) return kNegligibleScale;
  return power_of_two(shift - static_cast<std::int64_t>(below));
}

// Float32 twin of tile_scale: 2^(m - top) for m <= top, 0 below the float32 range and for m = -inf.
inline float online_factor(float m, float top) noexcept {
  const float below = top - m;
  if (!(below <= 126.0f)) return 0.0f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 - static_cast<int>(below)) << 23);
}

// x * factor, where a factor of 0 stands for a weight too small for float32: an infinite value stays
// infinite.
inline float online_scaled(float x, float factor) noexcept {
  return std::fabs(x) == std::numeric_limits<float>::infinity() ? x : x * factor;
}

struct RowFinish {
  double reciprocal = 0;  // of the denominator relative to 2^reference; 0 where there is no weight, NaN
  float lse = 0;          // natural logarithm

  double apply(double total) const noexcept {
    const bool infinite = std::fabs(total) == std::numeric_limits<double>::infinity();
    return infinite && reciprocal == reciprocal ? total : total * reciprocal;  // whatever the weight
  }
};

// l: the sum of weights relative to 2^reference. sink: natural-log logit, -inf for none.
inline RowFinish finish_row(float reference, double l, float sink) noexcept {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  RowFinish row;
  if (reference == kNone) {
    row.lse = sink;
    return row;
  }
  if (l != l || (l == 0 && sink == kNone)) {  // a NaN weight, or 0/0: plain attention gives NaN
    row.reciprocal = std::numeric_limits<double>::quiet_NaN();
    row.lse = std::numeric_limits<float>::quiet_NaN();
    return row;
  }
  const double sink_above = static_cast<double>(sink) * kLog2E - static_cast<double>(reference);
  if (sink_above > 900.0) {  // the keys vanish beside the sink
    row.lse = sink;
    return row;
  }
  const double denominator = l + exp2_f64(sink_above);
  row.reciprocal = 1 / denominator;
  row.lse = static_cast<float>((static_cast<double>(reference) + log2_f64(denominator)) * kLn2);
  return row;
}

}  // namespace kvring
