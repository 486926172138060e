// The algebra of partial results. A partial is the attention of one query row over some of its keys;
// partials over disjoint key sets merge into the attention over their union.
//
// Two forms:
//  * RowAccumulator: the raw state. Merging is exact, hence associative and commutative to the last bit.
//  * (out, lse) pairs, as kernels of other packages return them: merge_pair, within rounding of the exact
//  result.
//
// The identity is the online softmax of Milakov and Gimelshein (arXiv 1805.02867); the order-independent
// sum follows Demmel and Nguyen, "Parallel Reproducible Summation" (IEEE TC 2015), with bins on an
// absolute grid. docs/numerics.md gives the argument.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvring {

// A sum of float64 terms that does not depend on the order of the terms. The real line is cut into bins of
// 32 binary digits; a term is rounded to the grid of its own bin and the rest to the bin below, and only
// slices of the two topmost bins of the sum are kept. Infinities and NaN are sticky.
//
// hi holds the top bin's slices on top of a constant 1.5 * 2^52 units, so the exponent of hi says which
// bin it is; lo holds the slices of the bin below. Good for 2^20 terms. Terms must be below 2^159 and any
// part of one below 2^-256 is dropped.
struct BinnedSum {
  double hi;
  double lo;

  static BinnedSum empty() noexcept;
  void add(double term) noexcept;
  void merge(const BinnedSum& other) noexcept;
  // Multiplies by 2^-digits, digits a non-negative multiple of 32.
  void scale_down(double digits) noexcept;
  // The value, rounded once.
  double total() const noexcept;
};

// The raw attention state of one query row. Thread-compatible.
class RowAccumulator {
 public:
  explicit RowAccumulator(std::int64_t value_dim);

  // Adds one tile's partial: weights are relative to 2^(m + shift), l is their sum and x[d] the
  // weighted sum of values. m is integral; m = -inf adds nothing.
  void add_tile(float m, int shift, float l, std::span<const float> x);
  // Adds the partial of other keys of the same row.
  void merge(const RowAccumulator& other);

  // Normalised output (value_dim) and natural-log LSE. `sink` is a natural-log logit that joins the
  // denominator, -inf for none. No key: out 0, lse = sink.
  float finish(std::span<double> out, float sink) const;

  // The raw state, for tests of order independence: reference exponent (log base 2), then hi and lo of l
  // and of each dimension.
  float reference() const noexcept { return reference_; }
  const std::vector<BinnedSum>& sums() const noexcept { return sums_; }

 private:
  void raise_reference(float reference);

  float reference_;              // multiple of 32, at least every m so far; -inf when empty
  std::vector<BinnedSum> sums_;  // value_dim values, then l; relative to 2^reference_
};

// Merges b into a: pairs of normalised outputs (same length) and natural-log LSEs. The pair (0, -inf)
// is neutral on both sides. Finite inputs never overflow: weights are taken relative to the larger LSE.
void merge_pair(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b);

}  // namespace kvring
