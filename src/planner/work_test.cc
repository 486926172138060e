#include "planner/work.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kvring/error.h"
#include "mask/mask.h"

namespace kvring {
namespace {

Problem causal_problem(std::int64_t queries, std::int64_t keys, std::int64_t tile) {
  Problem p;
  p.q_len = queries;
  p.kv_len = keys;
  p.head_dim = p.value_dim = 8;
  p.causal = true;
  p.tile = tile;
  return p;
}

Layouts layouts_of(LayoutKind kind, const Problem& p, int ranks) { return make_layouts({kind}, p, ranks); }

RC_GTEST_PROP(PairCount, EqualsCountingOneByOne, ()) {
  const auto keys = *rc::gen::inRange<std::int64_t>(1, 60);
  const auto queries = *rc::gen::inRange<std::int64_t>(1, keys + 1);
  Problem p = causal_problem(queries, keys, *rc::gen::inRange<std::int64_t>(1, 7));
  p.causal = *rc::gen::inRange(0, 4) > 0;
  const int ranks = *rc::gen::inRange(1, 7);
  const Layouts layouts = layouts_of(static_cast<LayoutKind>(*rc::gen::inRange(0, 3)), p, ranks);
  const PairCount count(p, layouts);
  const Mask mask(p);
  for (int user = 0; user < ranks; ++user) {
    for (int owner = 0; owner < ranks; ++owner) {
      const Shard& q = layouts.q.shards[static_cast<std::size_t>(user)];
      const Shard& k = layouts.kv.shards[static_cast<std::size_t>(owner)];
      std::int64_t pairs = 0;
      for (std::int64_t i = 0; i < q.tokens(); ++i) {
        const Range seen = mask.visible(q.position(i));
        for (std::int64_t j = 0; j < k.tokens(); ++j)
          pairs += seen.begin <= k.position(j) && k.position(j) < seen.end;
      }
      RC_ASSERT(count.pairs(user, owner) == pairs);
    }
  }
}

ScheduleWork ring_work(const Problem& p, const Layouts& layouts) {
  return schedule_work(ScheduleKind::kRing, p, layouts, 4);
}

// Share of the ranks' time that is useful where each waits for the slowest in every step.
double useful_share(const ScheduleWork& work) {
  double step_by_step = 0;
  for (const StepWork& step : work.steps) step_by_step += step.pairs;
  return work.all_pairs / (step_by_step * static_cast<double>(work.steps.size()));
}

// Counting tokens, a contiguous shard of n has n (n + 1) / 2 pairs with itself, not n^2 / 2: the closed form
// is reached to within 1 / n.
TEST(RingWork, ContiguousCausalIsTheClosedForm) {
  for (const int ranks : {1, 2, 3, 8, 64}) {
    constexpr std::int64_t kShard = 4096;
    const Problem p = causal_problem(kShard * ranks, kShard * ranks, 512);
    const double share = useful_share(ring_work(p, layouts_of(LayoutKind::kContiguous, p, ranks)));
    EXPECT_NEAR(share, ranks / (2.0 * ranks - 1), 1.0 / kShard) << ranks;
  }
}

TEST(RingWork, ZigzagCausalIsEven) {
  for (const int ranks : {1, 2, 3, 8, 64}) {
    const Problem p = causal_problem(4096 * ranks, 4096 * ranks, 512);
    EXPECT_NEAR(useful_share(ring_work(p, layouts_of(LayoutKind::kZigzag, p, ranks))), 1, 1.0 / 4096)
        << ranks;
  }
}

// S stripes per rank: docs/algorithms.md, P S / (P S + P - 1).
TEST(RingWork, StripedCausalIsTheClosedForm) {
  const Problem p = causal_problem(4 * 4 * 4096, 4 * 4 * 4096, 4096);
  EXPECT_NEAR(useful_share(ring_work(p, layouts_of(LayoutKind::kStriped, p, 4))), 16.0 / 19, 1.0 / 4096);
}

TEST(RingWork, CountsHops) {
  const Problem p = causal_problem(4096, 4096, 512);
  const ScheduleWork work = ring_work(p, layouts_of(LayoutKind::kContiguous, p, 4));
  EXPECT_EQ(work.sent, (std::vector<std::int64_t>{1, 2, 3, 0}));
  EXPECT_EQ(work.all_pairs, 4096 * 4097 / 2);
  EXPECT_TRUE(work.steps[2].moves());
  EXPECT_FALSE(work.steps[3].moves());
}

// Every schedule computes the same pairs; what moves differs.
TEST(ScheduleWork, CountsWhatEachScheduleMoves) {
  Problem p = causal_problem(4096, 4096, 512);
  p.causal = false;
  p.q_heads = p.kv_heads = 4;
  const Layouts layouts = layouts_of(LayoutKind::kZigzag, p, 4);
  const double block = 1024 * 16 * 4.0, queries = 1024 * 8 * 4.0, rows = 1024 * (8 + 1) * 4.0;
  const double partials = 22 * 48 * (4 + 9 * 16.0);  // 1,024 rows are 22 panels of 48
  const auto work = [&](ScheduleKind kind, int per_node) {
    return schedule_work(kind, p, layouts, per_node);
  };
  for (const ScheduleKind kind : kSchedules)
    EXPECT_EQ(work(kind, 4).all_pairs, 4096.0 * 4096) << schedule_name(kind);

  const StepWork gather = work(ScheduleKind::kAllGather, 2).steps[0];
  EXPECT_EQ(gather.near.count, 1);
  EXPECT_EQ(gather.far.count, 2);
  EXPECT_EQ(gather.far.bytes, 2 * block);
  EXPECT_EQ(gather.node_bytes, 4 * block);  // two ranks, each to two others
  EXPECT_EQ(gather.pairs, 0);

  const ScheduleWork pass_q = work(ScheduleKind::kPassQ, 4);
  EXPECT_EQ(pass_q.steps[0].near.bytes, queries);
  EXPECT_EQ(pass_q.steps[2].near.bytes, queries + partials);
  EXPECT_EQ(pass_q.steps[2].merge_bytes, partials);
  EXPECT_EQ(pass_q.steps[4].near.bytes, partials);
  EXPECT_EQ(pass_q.steps[4].pairs, 0);

  const ScheduleWork ulysses =
      work(ScheduleKind::kUlysses, 4);  // a quarter of each head's bytes to each rank
  EXPECT_EQ(ulysses.steps[0].near.count, 6);
  EXPECT_EQ(ulysses.steps[0].near.bytes, 3 * (block + queries) / 4);
  EXPECT_EQ(ulysses.steps[1].pairs, 1024.0 * 4096 / 4);
  EXPECT_EQ(ulysses.steps[3].near.bytes, rows / 4);

  p.q_len = 1;
  const ScheduleWork tree =
      schedule_work(ScheduleKind::kTree, p, layouts_of(LayoutKind::kContiguous, p, 4), 4);
  ASSERT_EQ(std::ssize(tree.steps), 5);
  EXPECT_EQ(tree.steps[0].near.bytes, 8 * 4);
  EXPECT_EQ(tree.steps[2].pairs, 1024);
  EXPECT_EQ(tree.steps[2].read_bytes, block);
  EXPECT_EQ(tree.steps[4].merge_bytes, 48 * (4 + 9 * 16));
}

TEST(RingWork, LengthsNear64BitsAreCounted) {
  const std::int64_t tokens = std::int64_t{1} << 29;
  const Problem p = causal_problem(tokens, tokens, 512);
  EXPECT_EQ(ring_work(p, layouts_of(LayoutKind::kZigzag, p, 4)).all_pairs, tokens / 2 * (tokens + 1));
}

TEST(RingWork, RefusesMasksItCannotCount) {
  Problem p = causal_problem(64, 64, 16);
  p.window_left = 3;
  EXPECT_THROW(ring_work(p, layouts_of(LayoutKind::kZigzag, p, 2)), Unsupported);
}

}  // namespace
}  // namespace kvring
