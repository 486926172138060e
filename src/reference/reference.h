// Plain float64 attention over the whole sequence: the oracle of every test and of `kvring verify`.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/problem.h"

namespace kvring {

struct ReferenceRow {
  std::vector<double> out;   // value_dim
  double lse = 0;            // natural logarithm
  double max_abs_logit = 0;  // over visible keys, natural units, after scale and softcap: for error bounds
  std::vector<double> weighted_abs_v;  // per dim: sum of p |v|, the scale of rounding errors
};

// One row (batch b, query position s, query head h) from whole tensors, two passes in float64. A row that
// sees no key: out 0, lse -inf (with a sink: lse = sink). A visible NaN, or a visible logit of +inf, makes
// the row NaN; all visible logits -inf likewise; a visible infinite v with positive weight (however small)
// makes out infinite of its sign, both signs NaN. Hidden keys and values are never read.
ReferenceRow reference_row(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const float* sinks, std::int64_t b, std::int64_t s,
                           std::int64_t h);

}  // namespace kvring
