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

  // The exact union of visible(q) for all q of the range, appended to `out` as ascending, disjoint,
  // non-empty ranges: at most one per document.
  void append_visible(Range queries, std::vector<Range>& out) const;

 private:
  struct Document {
    std::int64_t q_begin, q_end, kv_begin, kv_end;
  };
  using Documents = std::vector<Document>;

  // The document of query q, which must exist.
  Documents::const_iterator find(std::int64_t q) const noexcept;
  Range visible_in(const Document& document, std::int64_t q) const noexcept;
  // The union of visible(q) over the document's queries in `queries`, which must meet it: one interval,
  // since those of neighbours overlap or touch.
  Range visible_in(const Document& document, Range queries) const noexcept;

  Documents documents_;                      // those that have queries, in order
  std::int64_t window_left_, window_right_;  // -1 unlimited; causal folded in as right = min(right, 0)
};

}  // namespace kvring
