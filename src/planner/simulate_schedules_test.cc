// Simulations of all schedules.
#include <gmock/gmock.h>

#include <algorithm>

#include "kvring/error.h"
#include "planner/simulate.h"
#include "planner/test_support.h"
#include "schedule/parcel.h"
#include "schedule/schedules.h"

namespace kvring {
namespace {

class EverySchedule : public testing::TestWithParam<ScheduleKind> {};
INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule, testing::ValuesIn(kSchedules), [](const auto& schedule) {
  std::string name = schedule_name(schedule.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// So many ranks on one node, and latency that is not nothing.
Machine one_node(int ranks) {
  Machine machine = round_machine();
  machine.ranks_per_node.value = ranks;
  machine.within_node.latency_s.value = 1e-6;
  machine.within_node.computing_bytes_per_s.value = 7e9;
  return machine;
}

// A price lets all merging begin when the last partial of a step is here; in the simulation, as in the
// executor, a partial is merged while the next is on its way. Ranks of a full mask do the same, so rank 0
// tells by how much.
double merged_early_s(ScheduleKind kind, const Setting& s) {
  const std::int64_t width = s.of(kind).memory.heads_per_lap;
  double seconds = 0;
  for (const Step& step : schedule_steps(kind, s.problem(), s.layouts(), 0)) {
    const auto partials = std::count_if(step.receives.begin(), step.receives.end(),
                                        [](const Transfer& t) { return t.parcel.cargo == Cargo::kPartials; });
    const auto bytes = parcel_bytes(s.problem(), s.layouts(), Cargo::kPartials, 0, width);
    seconds += static_cast<double>(std::max<std::int64_t>(partials - 1, 0) * 3 * bytes) /
               s.machine().memory_bytes_per_s.value;
  }
  return seconds * static_cast<double>(s.units()) / static_cast<double>(width);
}

TEST_P(EverySchedule, WithoutAMaskItTakesWhatThePlannerSays) {
  const ScheduleKind kind = GetParam();
  for (const std::int64_t slice : {512, 2048, 8192}) {
    for (const int ranks : {1, 2, 4, 6, 8, 16}) {
      const Machine machine = one_node(ranks);
      const Workload many = attention(slice * ranks, slice * ranks, 64 * ranks, 64 * ranks);
      // Two laps, both full.
      const std::int64_t heads = 2 * Setting(machine, many, {ranks, 0, {}}).of(kind).memory.heads_per_lap;
      const Setting s(machine, attention(slice * ranks, slice * ranks, heads, heads), {ranks, 0, {}});
      const double planned = price_schedule(kind, s).total_s - merged_early_s(kind, s);
      const Simulation played = simulate(kind, s, {});
      // Sums of some thousand terms.
      EXPECT_NEAR(played.total_s, planned, 1e-9 * planned) << slice << " tokens, " << ranks << " ranks";
      EXPECT_EQ(played.laps_played, 2);
      EXPECT_NEAR(played.path.compute_s + played.path.transfer_s, played.played_s, 1e-9 * planned);
    }
  }
}

// Four ranks of each of two nodes send all their messages over its links, which have less beside computing.
TEST(SharedLinks, RanksOfANodeTakeAsLongAsThePlannerSays) {
  for (const ScheduleKind kind : {ScheduleKind::kAllGather, ScheduleKind::kUlysses}) {
    for (const int links : {1, 2, 4}) {
      for (const double share : {1.0, 0.7, 0.1}) {
        Machine machine = round_machine();
        machine.between_nodes->links.value = links;
        machine.between_nodes->computing_bytes_per_s.value = share * 1e9;
        const Setting s(machine, attention(8 * 1024, 8 * 1024, 8, 8), {8, 4, {}});
        const double planned = price_schedule(kind, s).total_s;
        EXPECT_NEAR(simulate(kind, s, {}).total_s, planned, 1e-9 * planned)
            << schedule_name(kind) << " " << links << " " << share;
      }
    }
  }
}

// The tree moves one query and its partials in 12 messages one after the other, the ring 63 blocks per lap.
TEST(Decode, ByTreeBeatsTheRing) {
  const Machine machine = one_node(64);
  const Setting s(machine, attention(1, 1 << 20, 8, 8), {64, 0, {}});
  const double ring = simulate(ScheduleKind::kRing, s, {}).total_s;
  const double tree = simulate(ScheduleKind::kTree, s, {}).total_s;
  EXPECT_GT(ring / tree, 700) << ring << " " << tree;  // 741
}

TEST_P(EverySchedule, AStoppedRankIsNamed) {
  const Machine machine = one_node(8);
  const Setting s(machine, attention(8192, 8192, 8, 8), {8, 0, {}});
  const double whole = simulate(GetParam(), s, {}).total_s;
  for (const int rank : {0, 2, 7}) {
    for (const double share : {0.0, 0.1, 0.4}) {
      SimulationOptions options;
      options.timeout_s = 5;
      options.faults.stops = {{rank, share * whole}};
      const Simulation played = simulate(GetParam(), s, options);
      ASSERT_TRUE(played.stall) << rank << " " << share;
      EXPECT_EQ(played.stall->peer, rank) << share;
      EXPECT_NE(played.stall->rank, rank) << share;
      EXPECT_GE(played.stall->at_s, 5 + share * whole);
      EXPECT_LT(played.stall->at_s, 5 + whole);
    }
  }
}

// Of three ranks that each need the blocks before theirs. Rank 0 sends to rank 1, slowly, and only then to
// rank 2, which has the block of rank 1 already when that stops.
TEST(Stopped, WhatItWasSentDoesNotHoldUpOthers) {
  const Machine machine = one_node(3);
  Workload w = attention(3 * 2048, 3 * 2048, 1, 1);
  w.problem.causal = true;
  w.layout.kind = LayoutKind::kContiguous;
  const Setting s(machine, w, {3, 0, {}});
  const double hop = s.network().hop_s(0, static_cast<double>(s.slice_keys() * s.key_bytes()));
  SimulationOptions options;
  options.faults.links = {{0, 10.0}};
  options.faults.stops = {{1, 5 * hop}};
  const Simulation played = simulate(ScheduleKind::kAllGather, s, options);
  ASSERT_TRUE(played.stall);
  EXPECT_EQ(played.stall->rank, 1);
  EXPECT_EQ(played.stall->peer, 1);
}

}  // namespace
}  // namespace kvring
