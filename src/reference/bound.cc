#include "reference/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "problem/products.h"

namespace kvring {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();
constexpr double kU = 0x1p-24;
constexpr double kUBf16 = 0x1p-8;
constexpr double kMaxFloat = std::numeric_limits<float>::max();

// The error of a logit, natural units.
double logit_error(const Problem& p, const ReferenceRow& row) {
  const double scale = std::fabs(p.scale());
  const double scale2 = scale * std::numbers::log2e;  // what kernels multiply by
  const bool dot_fits = row.max_abs_dot <= scale * kMaxFloat / 2;
  // A scale of 0 has logits of exactly 0, but for a sink.
  if (scale2 > kMaxFloat / 2 || row.max_abs_dot > kMaxFloat / 2 || (scale > 0 && !dot_fits)) return kNoBound;
  double error = static_cast<double>(p.head_dim + 3) * kU * row.max_abs_dot;
  if (scale > 0) error += 0x1p-150 / scale2 * row.max_abs_dot;  // a scale that float32 holds as a subnormal
  error += (static_cast<double>(p.head_dim) * scale + 1) * 0x1p-149;
  return error + 12 * kU * p.softcap;
}

// Relative errors, named as in the derivation.
struct Errors {
  double delta;  // of a logit, absolute
  double t;      // between tiles
  double r;      // of a sum, without the logits
  double r_v;    // of a sum of weighted values, without the logits
  double lost;   // weights this small beside the largest of their tile are 0
};

Errors errors(const Problem& p, const ReferenceRow& row) {
  const double chain = static_cast<double>(std::min(p.tile, p.kv_len)) * kU;
  const double gamma = chain / (1 - chain);
  // A row sees keys of one document, whose grid has at most so many tiles.
  const std::int64_t most_tiles = p.kv_len / p.tile + 1;
  const auto tiles = static_cast<double>(most_tiles);
  const double t = tiles * (p.accumulation == Accumulation::kOnline ? 2 * kU : 0x1p-30);
  const bool bf16 = products_of(p.q_dtype, p.kv_dtype) == Products::kBF16;
  const double lost = bf16 ? 0x1p-55 : 0x1p-126;
  const double exponentials = std::pow(1 + 16 * kU + 0x1p-22, 2) * (1 + kU);
  const double r = exponentials * (1 + gamma) * (1 + t) - 1 + 2 * static_cast<double>(p.kv_len) * lost;
  return {logit_error(p, row), t, r, bf16 ? (1 + r) * (1 + kUBf16) - 1 : r, lost};
}

// Half a unit in the last place at x >= 0; infinite where x rounds to infinity.
double half_ulp(DType dtype, double x) {
  struct Format {
    int precision, min_exponent, max_exponent;
  };
  const Format f = dtype == DType::kF32    ? Format{24, -149, 127}
                   : dtype == DType::kBF16 ? Format{8, -133, 127}
                                           : Format{11, -24, 15};
  if (!(x < std::ldexp(1.0, f.max_exponent + 1) - std::ldexp(1.0, f.max_exponent - f.precision)))
    return kNoBound;
  const int last_place = x > 0 ? std::ilogb(x) - (f.precision - 1) : f.min_exponent;
  return std::ldexp(0.5, std::max(last_place, f.min_exponent));
}

}  // namespace

double out_bound(const Problem& p, const ReferenceRow& row, std::int64_t dim) {
  const auto d = static_cast<std::size_t>(dim);
  const Errors errs = errors(p, row);
  if (errs.delta == kNoBound) return kNoBound;
  if (!std::isfinite(row.out[d])) return 0;
  const double size = std::fabs(row.out[d]);
  const double keys = static_cast<double>(p.kv_len);
  const double e = std::exp(errs.delta) * (1 + errs.r) - 1;
  const double e_v = std::exp(errs.delta) * (1 + errs.r_v) - 1;
  const double largest_mean = (1 + errs.r_v) / (1 - errs.r) * row.max_abs_v[d];
  double error = largest_mean + row.max_abs_v[d];
  if (e < 1) error = std::min(error, (e_v + e) / (1 - e) * row.weighted_abs_v[d]);
  error += (errs.t + 2 * keys * errs.lost) * row.max_abs_v[d] + keys * 0x1p-148;
  error += 4 * kU * (size + error);
  // However wrong the weights, the result is a mean of values: it cannot round to infinity where they do not.
  const double mean_of_values = (1 + 4 * kU) * largest_mean + keys * 0x1p-148;
  return error + half_ulp(p.out_dtype, std::min(size + error, mean_of_values));
}

double lse_bound(const Problem& p, const ReferenceRow& row) {
  const Errors errs = errors(p, row);
  if (errs.delta == kNoBound) return kNoBound;
  if (!std::isfinite(row.lse)) return 0;
  const double log_sum = std::log(static_cast<double>(p.kv_len) + 2);
  return errs.delta + errs.r / (1 - errs.r) + 4 * kU * (std::max(1.0, std::fabs(row.lse)) + log_sum);
}

bool matches(double got, double expected, double bound) noexcept {
  if (bound == kNoBound) return true;
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::fabs(got - expected) <= bound;
}

}  // namespace kvring
