#include "kvring/partial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernel/bins.h"
#include "kernel/row_finish.h"
#include "kernel/scalar_math.h"
#include "kvring/error.h"

namespace kvring {
namespace {

double exponent_part(double hi) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(hi) & kExponentBits);
}

// Lifts the sum to the bin with this exponent part: the old top bin becomes the lower one or is dropped.
void raise(BinnedSum& sum, double to) {
  const double from = exponent_part(sum.hi);
  if (!(to > from)) return;
  if (std::isfinite(sum.lo)) sum.lo = to * kBinRatio == from ? sum.hi - 1.5 * from : 0.0;
  sum.hi = 1.5 * to;
}

// Exponent part of the lowest bin that takes the finite term.
double bin_of(double term) {
  const int exponent = term == 0 ? -1000 : std::ilogb(term) + 1;  // |term| < 2^exponent
  const int bin = static_cast<int>(std::ceil((exponent + 1) / static_cast<double>(kBinDigits)));
  return std::max(kLowestExponentPart, kUnitsInExponent * power_of_two(kBinDigits * (std::max(bin, -6) - 1)));
}

}  // namespace

BinnedSum BinnedSum::empty() noexcept { return {1.5 * kLowestExponentPart, 0.0}; }

void BinnedSum::add(double term) noexcept {
  if (!std::isfinite(term)) {
    lo += term;
    return;
  }
  raise(*this, bin_of(term));
  const double prime = 1.5 * exponent_part(hi);
  const double high = (term + prime) - prime;
  const double low_prime = prime * kBinRatio;
  const double low = ((term - high) + low_prime) - low_prime;
  hi += high;
  lo += low;
}

void BinnedSum::merge(const BinnedSum& other) noexcept {
  BinnedSum b = other;
  raise(*this, exponent_part(b.hi));
  raise(b, exponent_part(hi));
  hi += b.hi - 1.5 * exponent_part(b.hi);
  lo += b.lo;
}

void BinnedSum::scale_down(double digits) noexcept {
  if (digits > kClearingStep) {
    *this = {1.5 * kLowestExponentPart, std::isfinite(lo) ? 0.0 : lo};
    return;
  }
  const auto n = static_cast<std::int64_t>(digits);
  raise(*this, kLowestExponentPart * power_of_two(n));
  hi *= power_of_two(-n);
  lo *= power_of_two(-n);
}

double BinnedSum::total() const noexcept { return (hi - 1.5 * exponent_part(hi)) + lo; }

RowAccumulator::RowAccumulator(std::int64_t value_dim)
    : reference_(-std::numeric_limits<float>::infinity()), sums_(value_dim + 1, BinnedSum::empty()) {}

void RowAccumulator::raise_reference(float reference) {
  if (!(reference > reference_)) return;
  if (std::isfinite(reference_)) {
    const double digits = static_cast<double>(reference) - static_cast<double>(reference_);
    for (BinnedSum& sum : sums_) sum.scale_down(digits);
  }
  reference_ = reference;
}

void RowAccumulator::add_tile(float m, int shift, float l, std::span<const float> x) {
  if (m == -std::numeric_limits<float>::infinity()) return;
  if (x.size() + 1 != sums_.size()) throw InvalidArgument("tile partial and accumulator differ in value_dim");
  raise_reference(row_reference(m));
  const double scale = tile_scale(m, shift, reference_);
  for (std::size_t d = 0; d < x.size(); ++d) sums_[d].add(static_cast<double>(x[d]) * scale);
  sums_.back().add(static_cast<double>(l) * scale);
}

void RowAccumulator::merge(const RowAccumulator& other) {
  if (other.sums_.size() != sums_.size()) throw InvalidArgument("accumulators differ in value_dim");
  if (!(other.reference_ > -std::numeric_limits<float>::infinity())) return;
  RowAccumulator b = other;
  raise_reference(b.reference_);
  b.raise_reference(reference_);
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i].merge(b.sums_[i]);
}

float RowAccumulator::finish(std::span<double> out, float sink) const {
  const RowFinish row = finish_row(reference_, sums_.back().total(), sink);
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = row.apply(sums_[d].total());
  return row.lse;
}

void merge_pair(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b) {
  if (out_a.size() != out_b.size()) throw InvalidArgument("merge_pair: outputs differ in length");
  const float none = -std::numeric_limits<float>::infinity();
  if (lse_b == none) return;
  if (lse_a == none) {
    std::copy(out_b.begin(), out_b.end(), out_a.begin());
    lse_a = lse_b;
    return;
  }
  const double top = std::max(lse_a, lse_b);
  const double wa = exp2_f64((lse_a - top) * kLog2E);
  const double wb = exp2_f64((lse_b - top) * kLog2E);
  for (std::size_t d = 0; d < out_a.size(); ++d) {
    out_a[d] = static_cast<float>((wa * out_a[d] + wb * out_b[d]) / (wa + wb));
  }
  lse_a = static_cast<float>(top + log2_f64(wa + wb) * kLn2);
}

}  // namespace kvring
