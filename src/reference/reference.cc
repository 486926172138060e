#include "reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvring/error.h"
#include "mask/mask.h"

namespace kvring {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void note_finite(double& maximum, double value) {
  if (std::isfinite(value)) maximum = std::max(maximum, std::fabs(value));
}

// The logits of the row's visible keys, in order; notes their maxima in `row`.
std::vector<double> visible_logits(const Problem& p, const ConstTensorView& q, const ConstTensorView& k,
                                   std::int64_t b, std::int64_t s, std::int64_t h, ReferenceRow& row) {
  const Range keys = Mask(p).visible(s);
  const std::int64_t kv_head = h / (p.q_heads / p.kv_heads);
  std::vector<double> query;
  for (std::int64_t d = 0; d < p.head_dim; ++d)
    query.push_back(load_element(q.data, q.dtype, q.offset(b, s, h) + d));
  std::vector<double> logits;
  logits.reserve(static_cast<std::size_t>(keys.size()));
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    const std::int64_t offset = k.offset(b, key, kv_head);
    double dot = 0, abs_dot = 0;
    for (std::int64_t d = 0; d < p.head_dim; ++d) {
      const double product = query[static_cast<std::size_t>(d)] * load_element(k.data, k.dtype, offset + d);
      dot += product;
      abs_dot += std::fabs(product);
    }
    double logit = p.scale() * dot;
    if (p.softcap > 0) logit = p.softcap * std::tanh(logit / p.softcap);
    note_finite(row.max_abs_dot, p.scale() * abs_dot);
    note_finite(row.max_abs_logit, logit);
    logits.push_back(logit);
  }
  return logits;
}

// p * v as it enters the sum.
double weighted(double p, double logit, double v) {
  // exp() may round a positive weight to 0, but no positive weight makes an infinite value finite.
  return std::isinf(v) && logit > -kInf ? v : p * v;
}

}  // namespace

ReferenceRow reference_row(const Problem& p, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const float* sinks, std::int64_t b, std::int64_t s,
                           std::int64_t h) {
  if (p.has_sinks != (sinks != nullptr))
    throw InvalidArgument(p.has_sinks ? "the problem has sinks but none are given"
                                      : "sinks are given but the problem has none");
  const auto dims = static_cast<std::size_t>(p.value_dim);
  ReferenceRow row;
  row.out.assign(dims, 0.0);
  row.weighted_abs_v.assign(dims, 0.0);
  row.max_abs_v.assign(dims, 0.0);
  const double sink = sinks ? sinks[h] : -kInf;
  if (sinks) note_finite(row.max_abs_dot, sink);
  const std::vector<double> logits = visible_logits(p, q, k, b, s, h, row);
  if (logits.empty()) {
    row.lse = sink;
    return row;
  }
  // A NaN logit, and infinite ones that are the maximum, need no care: their weights exp(logit - top) are
  // NaN.
  double top = sink;
  for (double logit : logits) top = std::max(top, logit);
  double sum = std::exp(sink - top);
  const std::int64_t first = Mask(p).visible(s).begin;
  const std::int64_t kv_head = h / (p.q_heads / p.kv_heads);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(logits[i] - top);
    sum += weight;
    const std::int64_t offset = v.offset(b, first + static_cast<std::int64_t>(i), kv_head);
    for (std::size_t d = 0; d < dims; ++d) {
      const double value = load_element(v.data, v.dtype, offset + static_cast<std::int64_t>(d));
      row.out[d] += weighted(weight, logits[i], value);
      row.weighted_abs_v[d] += weighted(weight, logits[i], std::fabs(value));
      note_finite(row.max_abs_v[d], value);
    }
  }
  for (std::size_t d = 0; d < dims; ++d) {
    row.out[d] /= sum;
    row.weighted_abs_v[d] /= sum;
  }
  row.lse = top + std::log(sum);
  return row;
}

}  // namespace kvring
