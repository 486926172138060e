#include "mask/mask.h"

#include <algorithm>

namespace kvring {

Mask::Mask(const Problem& problem) {
  // A window that reaches past every key is no window; without it positions cannot overflow.
  window_left_ = problem.window_left >= problem.kv_len ? -1 : problem.window_left;
  window_right_ = problem.window_right >= problem.q_len ? -1 : problem.window_right;
  if (problem.causal) window_right_ = 0;  // -1 is unlimited, everything else at least 0

  const auto add = [&](Document document) {
    if (document.q_end > document.q_begin) documents_.push_back(document);
  };
  if (problem.cu_seqlens_q.empty()) add({0, problem.q_len, 0, problem.kv_len});
  for (std::size_t i = 1; i < problem.cu_seqlens_q.size(); ++i)
    add({problem.cu_seqlens_q[i - 1], problem.cu_seqlens_q[i], problem.cu_seqlens_kv[i - 1],
         problem.cu_seqlens_kv[i]});
}

Mask::Documents::const_iterator Mask::find(std::int64_t q) const noexcept {
  return std::upper_bound(documents_.begin(), documents_.end(), q,
                          [](std::int64_t position, const Document& d) { return position < d.q_end; });
}

Range Mask::visible_in(const Document& d, std::int64_t q) const noexcept {
  const std::int64_t aligned = d.kv_end - (d.q_end - q);  // last query sits at the last key
  const std::int64_t begin = window_left_ < 0 ? d.kv_begin : std::max(d.kv_begin, aligned - window_left_);
  const std::int64_t end = window_right_ < 0 ? d.kv_end : std::min(d.kv_end, aligned + window_right_ + 1);
  return {begin, std::max(begin, end)};
}

Range Mask::visible_in(const Document& d, Range queries) const noexcept {
  // Both ends rise by at most one per query, and only leading queries can see nothing, while their
  // interval still begins at kv_begin: so first begin to last end is the union, without gaps.
  const Range first = visible_in(d, std::max(queries.begin, d.q_begin));
  const Range last = visible_in(d, std::min(queries.end, d.q_end) - 1);
  return {first.begin, last.end};
}

Range Mask::visible(std::int64_t q) const noexcept { return visible_in(*find(q), q); }

Range Mask::visible_hull(Range queries) const noexcept {
  if (queries.size() <= 0) return {};
  auto first = find(queries.begin);
  auto last = find(queries.end - 1);
  while (first != last && visible_in(*first, queries).size() == 0) ++first;
  while (first != last && visible_in(*last, queries).size() == 0) --last;
  return {visible_in(*first, queries).begin, visible_in(*last, queries).end};
}

void Mask::append_visible(Range queries, std::vector<Range>& out) const {
  if (queries.size() <= 0) return;
  for (auto d = find(queries.begin); d != documents_.end() && d->q_begin < queries.end; ++d) {
    const Range seen = visible_in(*d, queries);
    if (seen.size() > 0) out.push_back(seen);
  }
}

}  // namespace kvring
