// Whole tensors in one process: the ring runs on threads, with nothing to start.
#pragma once

#include <functional>
#include <vector>

#include "kvring/ring.h"

namespace kvring {

struct AttendOptions {
  int ranks = 1;  // 1 to 1024
  LayoutSpec layout;
  RingOptions ring;
  double timeout_s = 30;                 // without progress
  std::function<void(double)> progress;  // from rank 0, see Ring::set_progress
};

struct AttendReport {
  double wall_s = 0;
  bool bits_invariant = true;
  std::vector<RankReport> per_rank;
};

// Exact attention of whole tensors: shapes, aliasing and errors as Ring::attend with all tokens. With several
// ranks each works on copies of its own shards, as it would on its own machine; one rank alone copies
// nothing.
AttendReport attend(const Problem& problem, const AttendOptions& options, const ConstTensorView& q,
                    const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
                    const LseView& lse = {}, const float* sinks = nullptr);

}  // namespace kvring
