#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"
#include "mask/mask.h"
#include "schedule/step.h"

namespace kvring {
namespace {

void check_fit(const Problem& problem, const Layouts& layouts, int rank) {
  const std::size_t ranks = layouts.q.shards.size();
  if (ranks != layouts.kv.shards.size())
    throw InvalidArgument(
        fmt::format("the query layout has {} ranks and the key layout {}; they must be equal", ranks,
                    layouts.kv.shards.size()));
  if (layouts.q.tokens != problem.q_len || layouts.kv.tokens != problem.kv_len)
    throw InvalidArgument(fmt::format("the layouts are of {} queries and {} keys; the problem has {} and {}",
                                      layouts.q.tokens, layouts.kv.tokens, problem.q_len, problem.kv_len));
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks)
    throw InvalidArgument(
        fmt::format("rank is {}; the layouts are of {} ranks, numbered from 0", rank, ranks));
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
  void find(const std::vector<Range>& ranges, std::vector<char>& found) const {
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

// Which blocks each rank attends, and how far every block travels. A block is attended by the ranks whose
// queries see a key of it.
class Needs {
 public:
  // Of `rank`, or with -1 of all ranks.
  Needs(const Problem& problem, const Layouts& layouts, int rank);

  bool attends(std::int32_t user, std::int32_t owner) const {
    return attended_[static_cast<std::size_t>(user)][static_cast<std::size_t>(owner)] != 0;
  }
  // Whether some rank `hops` or more after the owner attends its block.
  bool reaches(std::int32_t owner, std::int32_t hops) const {
    return reach_[static_cast<std::size_t>(owner)] >= hops;
  }

 private:
  std::vector<std::vector<char>> attended_;  // by user and owner: 1 or 0; empty for users nobody asked for
  std::vector<std::int32_t> reach_;          // by owner: hops to the last rank that attends the block
};

Needs::Needs(const Problem& problem, const Layouts& layouts, int rank)
    : attended_(layouts.q.shards.size()), reach_(layouts.q.shards.size()) {
  const auto ranks = static_cast<std::int32_t>(layouts.q.shards.size());
  const Mask mask(problem);
  const KeyOwners owners(layouts.kv);
  std::vector<Range> seen;
  std::vector<char> attended;
  for (std::int32_t user = 0; user < ranks; ++user) {
    seen.clear();
    for (const Range& queries : layouts.q.shards[static_cast<std::size_t>(user)].ranges())
      mask.append_visible(queries, seen);
    unite(seen);
    attended.assign(static_cast<std::size_t>(ranks), 0);
    owners.find(seen, attended);
    for (std::int32_t owner = 0; owner < ranks; ++owner) {
      std::int32_t& reach = reach_[static_cast<std::size_t>(owner)];
      const std::int32_t hops = user < owner ? user - owner + ranks : user - owner;
      if (attended[static_cast<std::size_t>(owner)]) reach = std::max(reach, hops);
    }
    if (rank < 0 || user == rank) attended_[static_cast<std::size_t>(user)] = attended;
  }
}

std::vector<Step> steps_of(const Needs& needs, int rank, std::int32_t ranks) {
  const auto owner_at = [&](std::int32_t step) { return (rank - step + ranks) % ranks; };
  std::vector<Step> steps(static_cast<std::size_t>(ranks));
  for (std::int32_t t = 0; t < ranks; ++t) {
    Step& step = steps[static_cast<std::size_t>(t)];
    step.step = t;
    const std::int32_t owner = owner_at(t);
    if (needs.reaches(owner, t)) {
      step.block = owner;
      step.attend = needs.attends(rank, owner);
      if (needs.reaches(owner, t + 1)) step.send_to = (rank + 1) % ranks;
    }
    const std::int32_t next = owner_at((t + 1) % ranks);
    if (needs.reaches(next, t + 1)) {
      step.receive_from = (rank - 1 + ranks) % ranks;
      step.receive_block = next;
    }
  }
  return steps;
}

}  // namespace

std::vector<Step> ring_steps(const Problem& problem, const Layouts& layouts, int rank) {
  check_fit(problem, layouts, rank);
  return steps_of(Needs(problem, layouts, rank), rank, static_cast<std::int32_t>(layouts.q.shards.size()));
}

void for_each_ring_steps(const Problem& problem, const Layouts& layouts,
                         const std::function<void(int, const std::vector<Step>&)>& visit) {
  check_fit(problem, layouts, 0);
  const Needs needs(problem, layouts, -1);
  const auto ranks = static_cast<std::int32_t>(layouts.q.shards.size());
  for (std::int32_t rank = 0; rank < ranks; ++rank) visit(rank, steps_of(needs, rank, ranks));
}

}  // namespace kvring
