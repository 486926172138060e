#include "planner/plan.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "kvring/error.h"
#include "planner/test_support.h"

namespace kvring {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

PlanQuery query_of(const Workload& workload, std::optional<int> ranks) {
  PlanQuery query;
  query.machine = round_machine();
  query.workload = workload;
  query.ranks = ranks;
  return query;
}

TEST(Plan, ARingThatHidesItsHopsIsChosen) {
  const Plan plan = make_plan(query_of(attention(1 << 16, 1 << 16, 1, 1), 8));
  EXPECT_EQ(plan.choice.name, "ring");
  EXPECT_THAT(plan.choice.reason, HasSubstr("every hop hides"));
  EXPECT_EQ(plan.choice.run_schedule, "ring");
  EXPECT_EQ(*plan.choice.run_ranks, 8);
  EXPECT_EQ(plan.break_even_slice_tokens, 1000);
  EXPECT_EQ(plan.slice_tokens, 8192);
  EXPECT_TRUE(plan.slowest_hop.between_nodes);
  EXPECT_TRUE(plan.larger.empty());
}

TEST(Plan, FewerRanksWhereHopsCostMoreThanTheyBring) {
  PlanQuery query = query_of(attention(4096, 4096, 1, 1), 64);
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.choice.name, "fewer-ranks") << plan.choice.reason;
  ASSERT_TRUE(plan.choice.run_ranks);
  EXPECT_LT(*plan.choice.run_ranks, 64);
  // What it names is no slower, in the same words of the planner.
  query.ranks = plan.choice.run_ranks;
  EXPECT_LE(make_plan(query).prices.front().total_s, plan.prices.front().total_s);
}

TEST(Plan, NoRingForWhatIsTooSmallToShare) {
  const Plan plan = make_plan(query_of(attention(512, 512, 1, 1), 8));
  EXPECT_EQ(plan.choice.name, "one-rank") << plan.choice.reason;
  EXPECT_EQ(*plan.choice.run_ranks, 1);
}

TEST(Plan, OneQueryPerStepGoesToATree) {
  // One KV head: nothing for tensor parallelism to cut without copies.
  const Plan plan = make_plan(query_of(attention(1, 1 << 24, 1, 1), 8));
  EXPECT_EQ(plan.choice.name, "tree") << plan.choice.reason;
  EXPECT_EQ(plan.choice.run_schedule, "tree");
  EXPECT_EQ(*plan.choice.run_ranks, 8);
}

TEST(Plan, AShortTurnOverALongCachePassesItsQueries) {
  PlanQuery query = query_of(attention(8 * 512, 1 << 20, 1, 1), 8);
  query.machine.between_nodes->bytes_per_s.value = 1e8;
  query.machine.within_node.bytes_per_s.value = 1e8;
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.choice.name, "pass-q") << plan.choice.reason;
}

// From links on which passing queries is better to links on which the ring is.
TEST(Plan, WithinATieOfTheBestTheRingIsChosen) {
  int tied = 0, lost = 0;
  for (double bytes_per_s = 1.5e9; bytes_per_s < 1.9e9; bytes_per_s *= 1.005) {
    PlanQuery query = query_of(attention(8 * 512, 1 << 16, 1, 1), 8);
    query.machine.between_nodes->bytes_per_s.value = bytes_per_s;
    query.machine.within_node.bytes_per_s.value = bytes_per_s;
    const Plan plan = make_plan(query);
    const double ring_s = plan.prices.front().total_s;
    double best_s = ring_s;
    for (const Price& price : plan.prices)
      if (price.usable()) best_s = std::min(best_s, price.total_s);
    EXPECT_EQ(plan.choice.name == "ring", ring_s <= 1.02 * best_s) << plan.choice.reason;
    tied += ring_s > best_s && ring_s <= 1.02 * best_s;
    lost += ring_s > 1.02 * best_s && ring_s < 1.2 * best_s;
  }
  EXPECT_GT(tied, 0);
  EXPECT_GT(lost, 0);
}

TEST(Plan, TensorParallelismWhereHeadsAbound) {
  PlanQuery query = query_of(attention(512, 1 << 16, 64, 64), 4);
  query.machine.within_node.latency_s.value = 1e-2;  // which every lap of a head pays, and sums once
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.choice.name, "tensor-parallel") << plan.choice.reason;
  EXPECT_THAT(plan.choice.reason, HasSubstr("belongs to the program around kvring"));
}

// Whatever the case: what is to be run can be run, or the reason says that it cannot.
TEST(Plan, NeverRecommendsSilentlyWhatThisBuildCannotRun) {
  for (const std::int64_t queries : {1, 512, 4096, 1 << 16}) {
    for (const std::int64_t keys : {1 << 16, 1 << 20}) {
      for (const int ranks : {1, 2, 8, 32}) {
        const Plan plan = make_plan(query_of(attention(queries, keys, 8, 2), ranks));
        ASSERT_TRUE(plan.choice.run_ranks);
        EXPECT_THAT(plan.choice.reason, StartsWith(plan.choice.name + ": "));
        bool runs = false;
        for (const Price& price : plan.prices)
          runs |= price.name == plan.choice.run_schedule && price.runs_here();
        EXPECT_TRUE(runs) << plan.choice.run_schedule;
        const bool is_schedule = plan.choice.name != "one-rank" && plan.choice.name != "fewer-ranks";
        if (is_schedule && plan.choice.name != plan.choice.run_schedule)
          EXPECT_THAT(plan.choice.reason, HasSubstr("this build cannot run it"));
        else
          EXPECT_THAT(plan.choice.reason, Not(HasSubstr("cannot")));
      }
    }
  }
}

bool any_fits(const Plan& plan) {
  return std::ranges::any_of(plan.prices, [](const Price& price) { return price.usable(); });
}

TEST(Plan, MoreRanksWhereItDoesNotFit) {
  PlanQuery query = query_of(attention(1 << 16, 1 << 16, 8, 8), 2);
  query.machine.memory_bytes.value = 100e6;
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.choice.name, "more-ranks") << plan.choice.reason;
  EXPECT_FALSE(any_fits(plan));
  query.ranks = plan.choice.run_ranks;
  EXPECT_TRUE(any_fits(make_plan(query)));
  *query.ranks /= 2;
  EXPECT_FALSE(any_fits(make_plan(query)));
}

// Accumulators of a ring can take more than what an all-gather gathers.
TEST(Plan, FewerRanksWhereOnlyAnotherScheduleFits) {
  PlanQuery query = query_of(attention(1 << 18, 1 << 18, 16, 2), {});
  query.mesh = Mesh();
  const Setting two(query.machine, query.workload, {2, 0, {}});
  const auto held = [&](ScheduleKind kind) { return static_cast<double>(two.of(kind).memory.total()); };
  const double memory = 1.4 * held(ScheduleKind::kAllGather);
  ASSERT_GT(held(ScheduleKind::kRing), memory);
  query.machine.memory_bytes.value = memory;
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.placement.ranks, 2);
  EXPECT_FALSE(plan.prices.front().fits);
  EXPECT_THAT(plan.choice.reason, HasSubstr("where the ring would hold"));
  query.ranks = 1;
  const Plan one = make_plan(query);
  ASSERT_EQ(one.choice.name, "more-ranks") << one.choice.reason;
  EXPECT_EQ(one.choice.run_ranks, 2);
  EXPECT_EQ(one.choice.run_schedule, "all-gather");
}

TEST(Plan, WeightsAreAFloorThatNoRingLowers) {
  PlanQuery query = query_of(attention(4096, 4096, 8, 8), {});
  query.machine.memory_bytes.value = 1e9;
  query.workload.model = Model{1024, 0, 0, 100'000'000'000};
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.choice.name, "nothing-fits") << plan.choice.reason;
  EXPECT_THAT(plan.choice.reason, HasSubstr("cut the model further"));
  EXPECT_FALSE(plan.choice.run_ranks);
  EXPECT_EQ(plan.max_context_tokens, 0);
  query.workload.model.reset();
  query.machine.memory_bytes.value = 1000;
  EXPECT_THAT(make_plan(query).choice.reason, HasSubstr("of 1 KB, and no ring of up to 4096 ranks"));
}

TEST(Plan, AutoIsTheFewestRanksThatHoldIt) {
  PlanQuery query = query_of(attention(1 << 18, 1 << 18, 8, 8), {});
  query.mesh = Mesh();
  query.machine.memory_bytes.value = 500e6;
  const Plan plan = make_plan(query);
  EXPECT_TRUE(plan.ranks_found);
  EXPECT_TRUE(any_fits(plan));
  ASSERT_GT(plan.placement.ranks, 1);
  query.ranks = plan.placement.ranks / 2;
  EXPECT_FALSE(any_fits(make_plan(query)));
  ASSERT_FALSE(plan.larger.empty());
  EXPECT_EQ(plan.larger.front().ranks, 2 * plan.placement.ranks);
}

TEST(Plan, AutoCutsHeadsWhereWeightsNeedIt) {
  PlanQuery query = query_of(attention(4096, 4096, 8, 8), {});
  query.machine.memory_bytes.value = 10e9;
  query.workload.model = Model{1024, 0, 0, 16'000'000'000};  // 32 GB
  const Plan plan = make_plan(query);
  EXPECT_EQ(plan.placement.mesh.tensor, 4);
  EXPECT_EQ(plan.placement.ranks, 1);
}

TEST(Plan, BadProblemsAreRefused) {
  Workload w = attention(4096, 4096, 8, 3);
  EXPECT_THROW(make_plan(query_of(w, 2)), InvalidArgument);
  PlanQuery query = query_of(attention(4096, 4096, 8, 8), 8);
  query.machine.between_nodes.reset();
  EXPECT_THROW(make_plan(query), InvalidArgument);
}

}  // namespace
}  // namespace kvring
