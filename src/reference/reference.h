// Plain float64 attention over the whole sequence: the oracle of every test and of `kvring verify`.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/problem.h"

namespace kvring {

struct ReferenceRow {
  std::vector<double> out;   // value_dim
  double lse = 0;            // natural logarithm
  double max_abs_logit = 0;  // over visible keys, natural units, after scale and softcap
  double max_abs_dot = 0;  // over visible keys: |scale| * sum |q_d k_d|, what a logit's rounding scales with;
                           // a sink counts as |sink|
  std::vector<double> weighted_abs_v;  // per dim: sum of p |v|, what an output's rounding scales with
  std::vector<double> max_abs_v;       // per dim: over visible keys
};
// The three maxima leave out what is not finite: an infinite logit or value carries no rounding.

// One row (batch b, query position s, query head h) from whole tensors, two passes in float64. A row that
// sees no key: out 0, lse -inf (with a sink: lse = sink). A NaN logit, a logit of +inf, or all logits
// (the sink included) -inf make the row NaN, lse too. A NaN in a visible v makes its dim of out NaN; an
// infinite v makes it infinite of its sign, however small a positive weight is, and NaN where both signs
// meet or the weight is exactly 0 (a logit of -inf). Hidden keys and values are never read. `sinks` must
// be given exactly when the problem has them, else InvalidArgument.
ReferenceRow reference_row(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const float* sinks, std::int64_t b, std::int64_t s,
                           std::int64_t h);

}  // namespace kvring
