// How many (query, key) pairs each step of a ring computes: what causal masks and layouts do to the balance.
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
  const Layouts& layouts_;
  bool causal_;
  std::int64_t shift_;  // of a query's position to that of the last key it sees
  std::vector<KeyCount> keys_;
};

// One step of a ring, over all ranks.
struct StepWork {
  std::int64_t most_pairs = 0;  // of any rank: its neighbours wait for it
  bool moves = false;           // some block is passed on
};
struct RingWork {
  std::vector<StepWork> steps;
  std::int64_t all_pairs = 0;
  std::int64_t most_of_query_rank = 0;  // the busiest rank where queries stay: ring, all-gather
  std::int64_t most_of_key_rank = 0;    // the busiest rank where keys stay: pass-q, tree
  std::vector<std::int64_t> hops;       // by link r -> r + 1: blocks passed on in a lap
};
// Prices the steps that schedule_steps() returns for every rank. O(P^2) counts.
RingWork ring_work(const Problem& problem, const Layouts& layouts);

}  // namespace kvring
