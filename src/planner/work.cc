#include "planner/work.h"

#include <algorithm>
#include <set>

#include "kvring/error.h"
#include "schedule/parcel.h"
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
  constexpr std::size_t kMostRemembered = 1024;
  if (keys_.size() <= kMostRemembered) known_.assign(keys_.size() * keys_.size(), -1);
}

std::int64_t PairCount::pairs(int query_rank, int key_rank) const {
  if (known_.empty()) return count(query_rank, key_rank);
  std::int64_t& known =
      known_[static_cast<std::size_t>(query_rank) * keys_.size() + static_cast<std::size_t>(key_rank)];
  if (known < 0) known = count(query_rank, key_rank);
  return known;
}

std::int64_t PairCount::count(int query_rank, int key_rank) const {
  const Shard& queries = layouts_.q.shards[static_cast<std::size_t>(query_rank)];
  const KeyCount& keys = keys_[static_cast<std::size_t>(key_rank)];
  if (!causal_) return queries.tokens() * keys.tokens();
  std::int64_t pairs = 0;
  for (const Range& range : queries.ranges())  // query i sees the keys below i + shift + 1
    pairs += keys.sum_below(range.begin + shift_ + 1, range.end + shift_ + 1);
  return pairs;
}

namespace {

void raise(double& most, double value) { most = std::max(most, value); }

// Puts what each rank does in each step into what any does.
class Gathering {
 public:
  Gathering(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int per_node)
      : problem_(problem),
        layouts_(layouts),
        count_(problem, layouts),
        ranks_(static_cast<int>(layouts.q.shards.size())),
        per_node_(per_node),
        share_(kind == ScheduleKind::kUlysses ? 1.0 / ranks_ : 1.0) {
    work_.sent.resize(layouts.q.shards.size());
    for_each_rank_steps(kind, problem, layouts, [&](int rank, const std::vector<Step>& steps) {
      work_.steps.resize(std::max(work_.steps.size(), steps.size()));
      node_out_.resize(work_.steps.size(), 0.0);
      node_in_.resize(work_.steps.size(), 0.0);
      if (rank % per_node_ == 0) end_node();
      for (const Step& step : steps) add(rank, step);
      if (!attends_at_once(kind, ranks_)) raise(work_.accumulator_bytes, accumulator_bytes(steps));
    });
    end_node();
  }
  const ScheduleWork& work() const noexcept { return work_; }

 private:
  void add(int rank, const Step& step) {
    const auto t = static_cast<std::size_t>(step.step);
    StepWork& to = work_.steps[t];
    work_.sent[static_cast<std::size_t>(rank)] += std::ssize(step.sends);
    node_out_[t] += move(rank, step.sends, to);
    node_in_[t] += move(rank, step.receives, to);
    double pairs = 0, read = 0, merged = 0;
    for (const Attend& attend : step.attends) {
      pairs += share_ * static_cast<double>(count_.pairs(attend.queries, attend.block));
      read += share_ * bytes({Cargo::kBlock, attend.block});
    }
    for (const Transfer& receive : step.receives) {
      if (receive.parcel.cargo == Cargo::kPartials) merged += bytes(receive.parcel);
    }
    work_.all_pairs += pairs;
    raise(to.pairs, pairs);
    raise(to.read_bytes, read);
    raise(to.merge_bytes, merged);
  }

  // Of the queries that a rank meets in a lap.
  double accumulator_bytes(const std::vector<Step>& steps) const {
    std::set<std::int32_t> met;
    for (const Step& step : steps)
      for (const Attend& attend : step.attends) met.insert(attend.queries);
    double sum = 0;
    for (const std::int32_t owner : met) sum += bytes({Cargo::kPartials, owner});
    return sum;
  }

  // The transfers of a rank in one direction. Returns the bytes that leave or enter its node.
  double move(int rank, const std::vector<Transfer>& transfers, StepWork& to) const {
    StepWork::Messages near, far;
    for (const Transfer& transfer : transfers) {
      const double size = bytes(transfer.parcel);
      StepWork::Messages& link = rank / per_node_ == transfer.peer / per_node_ ? near : far;
      link.count += 1;
      link.bytes += size;
      raise(to.largest_message, size);
    }
    for (const auto& [of_rank, most] : {std::pair(&near, &to.near), {&far, &to.far}}) {
      most->count = std::max(most->count, of_rank->count);
      raise(most->bytes, of_rank->bytes);
    }
    raise(to.rank_bytes, near.bytes + far.bytes);
    return far.bytes;
  }

  void end_node() {
    for (std::size_t t = 0; t < work_.steps.size(); ++t) {
      raise(work_.steps[t].node_bytes, std::max(node_out_[t], node_in_[t]));
      node_out_[t] = node_in_[t] = 0;
    }
  }

  // Of one KV head of a lap.
  double bytes(const Parcel& parcel) const {
    const double whole = static_cast<double>(parcel_bytes(problem_, layouts_, parcel.cargo, parcel.owner, 1));
    return parcel.share == kWholeLap ? whole : whole * share_;
  }

  const Problem& problem_;
  const Layouts& layouts_;
  PairCount count_;
  int ranks_, per_node_;
  double share_;  // of the heads that a rank attends
  ScheduleWork work_;
  std::vector<double> node_out_, node_in_;  // of the node at hand, by step
};

}  // namespace

ScheduleWork schedule_work(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int per_node) {
  return Gathering(kind, problem, layouts, per_node).work();
}

}  // namespace kvring
