// Mask: who may look at whom. For every mask here a query sees one contiguous interval of keys.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/layout.h"
#include "kvring/problem.h"

namespace kvring {

class Mask {
 public:
  explicit Mask(const Problem& problem);

  // Global key positions that the query at global position q sees: [begin, end), end >= begin; an empty
  // interval has begin == end.
  Range visible(std::int64_t q) const noexcept;

  // The smallest interval that holds visible(q) for all q of the range; empty when all are. May hold keys
  // no query sees (a gap between documents with an empty side).
  Range visible_hull(Range queries) const noexcept;

 private:
  // one entry per document that has queries
  struct Document {
    std::int64_t q_begin, q_end, kv_begin, kv_end;
  };
  std::vector<Document> documents_;
  std::int64_t window_left_, window_right_;  // -1 unlimited; causal folded in as right = min(right, 0)
};

}  // namespace kvring
