// What the steps of a schedule compute and move: what masks and layouts do to the balance.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// Counts, for the keys of one shard, those before a position, and sums of such counts.
class KeyCount {
 public:
  explicit KeyCount(const Shard& shard);
  // The sum over begin <= x < end of the number of keys at positions below x; positions may lie outside.
  // O(log ranges).
  std::int64_t sum_below(std::int64_t begin, std::int64_t end) const;
  std::int64_t tokens() const noexcept { return tokens_; }

 private:
  std::int64_t sum_below(std::int64_t end) const;

  struct Run {
    Range range;
    std::int64_t keys_before;  // of earlier ranges
    std::int64_t sum_before;   // of counts below x, over 0 <= x <= range.begin
  };
  std::vector<Run> runs_;
  std::int64_t tokens_ = 0;
};

// Pairs that see each other, of one batch entry and head. Full and causal masks of one document; throws
// Unsupported for a window or several documents.
class PairCount {
 public:
  PairCount(const Problem& problem, const Layouts& layouts);
  std::int64_t pairs(int query_rank, int key_rank) const;

 private:
  std::int64_t count(int query_rank, int key_rank) const;

  const Layouts& layouts_;
  bool causal_;
  std::int64_t shift_;  // of a query's position to that of the last key it sees
  std::vector<KeyCount> keys_;
  mutable std::vector<std::int64_t>
      known_;  // by query, then key rank; -1: not yet. Empty where they are many
};

// What the ranks of a step do at most, for one KV head of a lap. (Where heads are shared out, a rank's share
// of one: 1 / P.)
struct StepWork {
  // Over the links of one kind, into or out of any rank.
  struct Messages {
    std::int64_t count = 0;
    double bytes = 0;
  };
  double pairs = 0;        // (query, key) pairs attended, of one query head
  double read_bytes = 0;   // of blocks that they lie in
  double merge_bytes = 0;  // of partials
  Messages near, far;      // within a node, between nodes
  double rank_bytes = 0;   // of both, into or out of any rank
  double node_bytes = 0;   // into or out of any node
  double largest_message = 0;
  bool moves() const noexcept { return near.count + far.count > 0; }
};

struct ScheduleWork {
  std::vector<StepWork> steps;
  double all_pairs = 0;            // of one query head
  double accumulator_bytes = 0;    // that a rank keeps in a lap, of one KV head
  std::vector<std::int64_t> sent;  // by rank: parcels, in a lap
};
// Of the steps that schedule_steps() returns for every rank, `per_node` neighbours on each node. Counts
// O(P^2) pairs, but P^3 of ulysses. Throws as schedule_steps() does.
ScheduleWork schedule_work(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int per_node);

}  // namespace kvring
