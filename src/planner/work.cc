#include "planner/work.h"

#include <algorithm>

#include "kvring/error.h"
#include "schedule/step.h"

namespace kvring {

KeyCount::KeyCount(const Shard& shard) {
  std::vector<Range> ranges = shard.ranges();
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::int64_t sum = 0, from = 0;
  for (const Range& range : ranges) {
    sum += (range.begin - from) * tokens_;  // from < x <= range.begin sees the keys so far
    runs_.push_back({range, tokens_, sum});
    sum += range.size() * tokens_ + range.size() * (range.size() + 1) / 2;
    tokens_ += range.size();
    from = range.end;
  }
}

// Over 0 <= x < end, that is x <= end - 1.
std::int64_t KeyCount::sum_below(std::int64_t end) const {
  const std::int64_t last = end - 1;
  const auto next = std::upper_bound(runs_.begin(), runs_.end(), last,
                                     [](std::int64_t x, const Run& run) { return x < run.range.begin; });
  if (next == runs_.begin()) return 0;
  const Run& run = *std::prev(next);
  const std::int64_t inside = std::min(last, run.range.end) - run.range.begin;
  const std::int64_t after = std::max<std::int64_t>(0, last - run.range.end);
  return run.sum_before + inside * run.keys_before + inside * (inside + 1) / 2 +
         after * (run.keys_before + run.range.size());
}

std::int64_t KeyCount::sum_below(std::int64_t begin, std::int64_t end) const {
  return sum_below(end) - sum_below(begin);
}

PairCount::PairCount(const Problem& problem, const Layouts& layouts)
    : layouts_(layouts), causal_(problem.causal), shift_(problem.kv_len - problem.q_len) {
  if (problem.window_left >= 0 || problem.window_right >= 0 || problem.cu_seqlens_q.size() > 2)
    throw Unsupported("the planner counts the pairs of full and causal masks of one document only");
  for (const Shard& shard : layouts.kv.shards) keys_.emplace_back(shard);
}

std::int64_t PairCount::pairs(int query_rank, int key_rank) const {
  const Shard& queries = layouts_.q.shards[static_cast<std::size_t>(query_rank)];
  const KeyCount& keys = keys_[static_cast<std::size_t>(key_rank)];
  if (!causal_) return queries.tokens() * keys.tokens();
  std::int64_t pairs = 0;
  for (const Range& range : queries.ranges())  // query i sees the keys below i + shift + 1
    pairs += keys.sum_below(range.begin + shift_ + 1, range.end + shift_ + 1);
  return pairs;
}

RingWork ring_work(const Problem& problem, const Layouts& layouts) {
  const auto ranks = static_cast<int>(layouts.q.shards.size());
  const PairCount count(problem, layouts);
  RingWork work;
  work.steps.resize(static_cast<std::size_t>(ranks));
  work.hops.resize(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> of_keys(static_cast<std::size_t>(ranks));
  for_each_rank_steps(ScheduleKind::kRing, problem, layouts, [&](int rank, const std::vector<Step>& steps) {
    std::int64_t of_queries = 0;
    for (const Step& step : steps) {
      StepWork& at = work.steps[static_cast<std::size_t>(step.step)];
      if (!step.sends.empty()) {
        at.moves = true;
        ++work.hops[static_cast<std::size_t>(rank)];
      }
      for (const Attend& attend : step.attends) {
        const std::int64_t pairs = count.pairs(rank, attend.block);
        at.most_pairs = std::max(at.most_pairs, pairs);
        of_queries += pairs;
        of_keys[static_cast<std::size_t>(attend.block)] += pairs;
      }
    }
    work.all_pairs += of_queries;
    work.most_of_query_rank = std::max(work.most_of_query_rank, of_queries);
  });
  work.most_of_key_rank = *std::max_element(of_keys.begin(), of_keys.end());
  return work;
}

}  // namespace kvring
