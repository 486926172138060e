#include "schedule/needs.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"
#include "mask/mask.h"

namespace kvring {
namespace {

void check_fit(const Problem& problem, const Layouts& layouts) {
  const std::size_t ranks = layouts.q.shards.size();
  if (ranks != layouts.kv.shards.size())
    throw InvalidArgument(
        fmt::format("the query layout has {} ranks and the key layout {}; they must be equal", ranks,
                    layouts.kv.shards.size()));
  if (layouts.q.tokens != problem.q_len || layouts.kv.tokens != problem.kv_len)
    throw InvalidArgument(fmt::format("the layouts are of {} queries and {} keys; the problem has {} and {}",
                                      layouts.q.tokens, layouts.kv.tokens, problem.q_len, problem.kv_len));
}

// Who owns which keys, searchable by position.
class KeyOwners {
 public:
  explicit KeyOwners(const Layout& layout) {
    for (std::size_t rank = 0; rank < layout.shards.size(); ++rank) {
      const auto& ranges = layout.shards[rank].ranges();
      for (const Range& range : ranges) entries_.push_back({range, static_cast<std::int32_t>(rank)});
      owners_ += ranges.empty() ? 0 : 1;
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.range.begin < b.range.begin; });
  }

  // Sets found[r] for every rank r that owns a position of the ranges.
  void find(const std::vector<Range>& ranges, char* found) const {
    std::int64_t missing = owners_;  // once all owners are found, as in a full mask, there is no more to see
    for (const Range& range : ranges) {
      auto entry = std::upper_bound(entries_.begin(), entries_.end(), range.begin,
                                    [](std::int64_t p, const Entry& e) { return p < e.range.end; });
      for (; entry != entries_.end() && entry->range.begin < range.end; ++entry) {
        const auto owner = static_cast<std::size_t>(entry->owner);
        if (found[owner]) continue;
        found[owner] = 1;
        if (--missing == 0) return;
      }
    }
  }

 private:
  struct Entry {
    Range range;
    std::int32_t owner;
  };
  std::vector<Entry> entries_;
  std::int64_t owners_ = 0;  // ranks with keys
};

// Sorts ranges and joins those that overlap or touch: the stripes of a causal mask all see the same start.
void unite(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Range& range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

}  // namespace

Needs::Needs(const Problem& problem, const Layouts& layouts)
    : ranks_(static_cast<std::int32_t>(layouts.q.shards.size())),
      attended_(layouts.q.shards.size() * layouts.q.shards.size()),
      block_reach_(layouts.q.shards.size()),
      query_reach_(layouts.q.shards.size()) {
  check_fit(problem, layouts);
  const Mask mask(problem);
  const KeyOwners owners(layouts.kv);
  std::vector<Range> seen;
  for (std::int32_t user = 0; user < ranks_; ++user) {
    const Shard& queries = layouts.q.shards[static_cast<std::size_t>(user)];
    queries_.push_back(queries.tokens() > 0 ? 1 : 0);
    seen.clear();
    for (const Range& range : queries.ranges()) mask.append_visible(range, seen);
    unite(seen);
    owners.find(seen, attended_.data() + static_cast<std::size_t>(user) * static_cast<std::size_t>(ranks_));
    for (std::int32_t owner = 0; owner < ranks_; ++owner) {
      if (!attends(user, owner)) continue;
      std::int32_t& block = block_reach_[static_cast<std::size_t>(owner)];
      std::int32_t& query = query_reach_[static_cast<std::size_t>(user)];
      block = std::max(block, after(user, -owner));
      query = std::max(query, after(owner, -user));
    }
  }
}

}  // namespace kvring
