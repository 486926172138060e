#include "planner/simulate.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "kvring/error.h"
#include "planner/test_support.h"

namespace kvring {
namespace {

Workload causal(std::int64_t tokens, LayoutKind kind) {
  Workload w = attention(tokens, tokens, 1, 1);
  w.problem.causal = true;
  w.layout.kind = kind;
  return w;
}

// Links so fast that nothing waits for them.
Machine instant_machine() {
  Machine m = round_machine();
  m.within_node.bytes_per_s.value = m.between_nodes->bytes_per_s.value = 1e20;
  return m;
}

TEST(Simulate, WithoutAMaskItIsThePlannersRing) {
  Machine machine = round_machine();
  machine.calls = CallRates{{1e10, "", ""}, {2e10, "", ""}};
  machine.within_node.computing_s_per_byte.value = 1e-11;
  machine.within_node.computing_bytes_per_s.value = 6e9;
  for (const std::int64_t tokens : {2048, 4096, 16384, 65536}) {
    for (const int ranks : {1, 2, 4}) {  // one node: all hops alike
      const Setting s(machine, attention(tokens, tokens, 2, 2), {ranks, 4, {}});
      const Price ring = price_schedule(ScheduleKind::kRing, s);
      const Simulation played = simulate(ScheduleKind::kRing, s, {});
      EXPECT_NEAR(played.total_s, ring.total_s, 1e-9 * ring.total_s) << tokens << " " << ranks;
      double exposed = 0;
      for (const RankTimes& rank : played.ranks)
        exposed = std::max(exposed, rank.late_s + rank.transfer_s + rank.send_s);
      EXPECT_NEAR(exposed, ring.exposed_s, 1e-9 * ring.total_s) << tokens << " " << ranks;
    }
  }
}

// Over slow hops every rank ends as late as the slowest hop makes it, whatever the fast ones do.
TEST(Simulate, TheSlowestHopSetsThePace) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(4096, 4096, 1, 1), {8, 4, {}});
  const Simulation played = simulate(ScheduleKind::kRing, s, {});
  const Price ring = price_schedule(ScheduleKind::kRing, s);
  EXPECT_LE(played.total_s, ring.total_s * (1 + 1e-9));
  EXPECT_GT(played.total_s, 0.85 * ring.total_s);
  EXPECT_GT(played.path.transfers, 3);
  EXPECT_NEAR(played.path.compute_s + played.path.transfer_s, played.total_s, 1e-9);
}

// Useful share of the naive ring, P / (2 P - 1), and 1 for zigzag (docs/algorithms.md), at 8 to 1,024 ranks.
// A slice of n tokens has n (n + 1) / 2 pairs with itself, hence 1 / n; pairs are kept in 24 bits.
TEST(Simulate, ContiguousCausalWastesHalfAndZigzagNothing) {
  const Machine machine = instant_machine();
  for (const int ranks : {8, 32, 128, 512, 1024}) {
    constexpr std::int64_t kSlice = 1024;
    const auto efficiency = [&](LayoutKind kind) {
      return simulate(ScheduleKind::kRing, Setting(machine, causal(kSlice * ranks, kind), {ranks, 4, {}}), {})
          .efficiency;
    };
    EXPECT_NEAR(efficiency(LayoutKind::kContiguous), ranks / (2.0 * ranks - 1), 1.0 / kSlice) << ranks;
    EXPECT_NEAR(efficiency(LayoutKind::kZigzag), 1, 1.0 / kSlice) << ranks;
  }
}

// Five heads in laps of two: the last lap has its latencies as the others.
TEST(Simulate, ALapOfFewerHeadsIsNoFractionOfALap) {
  Machine machine = round_machine();
  machine.within_node.latency_s.value = 1e-2;
  const Setting s(machine, attention(4 * 1024, 4 * 1024, 5, 5), {4, 4, {}});
  ASSERT_EQ(s.memory().heads_per_lap, 2);
  const Simulation played = simulate(ScheduleKind::kRing, s, {});
  EXPECT_GT(played.total_s, 3 * 3 * 1e-2);
  EXPECT_NEAR(played.total_s, price_schedule(ScheduleKind::kRing, s).total_s, 1e-9);
  EXPECT_EQ(played.laps, 3);
  EXPECT_EQ(played.laps_played, 2);
}

TEST(Simulate, AStopBeyondWhatIsPlayedIsRefused) {
  const Machine machine = instant_machine();
  Workload w = attention(8 * 1024, 8 * 1024, 2, 2);
  w.layers = 100;
  const Setting s(machine, w, {8, 4, {}});
  SimulationOptions options;
  options.most_steps = 8 * 8 * 4;  // of so many laps
  const Simulation whole = simulate(ScheduleKind::kRing, s, options);
  ASSERT_LT(2 * whole.played_s, whole.total_s);
  options.faults.stops = {{3, 2 * whole.played_s}};
  EXPECT_THROW(simulate(ScheduleKind::kRing, s, options), InvalidArgument);
  options.faults.stops = {{3, 0.5 * whole.played_s}};
  EXPECT_TRUE(simulate(ScheduleKind::kRing, s, options).stall);
  options.faults.stops = {{3, 2 * whole.total_s}};
  EXPECT_FALSE(simulate(ScheduleKind::kRing, s, options).stall);
}

// Its latency too; but what a message takes from computing goes by its bytes.
TEST(Simulate, ASlowLinkTakesLongerForAllOfAMessage) {
  Machine machine = round_machine();
  machine.within_node.latency_s.value = 1e-3;
  machine.within_node.computing_s_per_byte.value = 1e-12;
  const Setting s(machine, attention(4 * 1024, 4 * 1024, 1, 1), {4, 4, {}});
  SimulationOptions options;
  const Simulation alone = simulate(ScheduleKind::kRing, s, options);
  options.faults.links = {{0, 100.0}};
  const Simulation slow = simulate(ScheduleKind::kRing, s, options);
  EXPECT_DOUBLE_EQ(slow.ranks[1].compute_s, alone.ranks[1].compute_s);
  // Three messages pass, one after the other.
  EXPECT_GT(slow.total_s, 3 * 100 * (1e-3 + 1024 * 512 / 1e10));
}

TEST(Simulate, TellsHowFarItIs) {
  const Machine machine = instant_machine();
  const Setting s(machine, attention(64 * 1024, 64 * 1024, 8, 8), {64, 4, {}});
  SimulationOptions options;
  std::vector<double> shares;
  options.progress = [&](double share) { shares.push_back(share); };
  const Simulation played = simulate(ScheduleKind::kRing, s, options);
  const std::int64_t steps = 64 * 64 * played.laps_played;
  EXPECT_EQ(shares.size(), static_cast<std::size_t>(steps / 4096));
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1);
}

TEST(Simulate, ASlowRankHoldsUpTheRing) {
  const Machine machine = instant_machine();
  const Setting s(machine, attention(8192, 8192, 1, 1), {8, 4, {}});
  SimulationOptions options;
  options.faults.ranks = {{3, 2.0}};
  const Simulation slow = simulate(ScheduleKind::kRing, s, options);
  // Twice its own computing; blocks pass through it whatever it computes, but not further ahead than its
  // receives.
  EXPECT_NEAR(slow.total_s, 2 * simulate(ScheduleKind::kRing, s, {}).total_s, 1e-9);
  EXPECT_EQ(slow.path.ends_at, 3);
  EXPECT_GT(slow.ranks[4].late_s, 0);
  EXPECT_EQ(slow.ranks[3].late_s, 0);
  EXPECT_GT(slow.ranks[2].send_s, 0);  // its slots stay full until rank 3 takes what is in them
}

// Rank 3 takes two steps' time for each of its own, but what passes through it is with rank 4 when that
// begins.
TEST(Simulate, WhatPassesThroughDoesNotWaitForComputing) {
  const Machine machine = instant_machine();
  const Setting s(machine, attention(8192, 8192, 1, 1), {8, 4, {}});
  const double step = simulate(ScheduleKind::kRing, s, {}).total_s / 8;
  SimulationOptions options;
  options.faults.ranks = {{3, 2.0}};
  // Rank 3 posts the receive of the last block that goes on when it begins step 5.
  EXPECT_NEAR(simulate(ScheduleKind::kRing, s, options).ranks[4].end_s, (2 * 5 + 1) * step, 1e-12);
}

TEST(Simulate, ASlowLinkIsExposed) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(16384, 16384, 1, 1), {4, 4, {}});
  ASSERT_NEAR(simulate(ScheduleKind::kRing, s, {}).efficiency, 1, 1e-9);
  SimulationOptions options;
  options.faults.links = {{1, 100.0}};
  const Simulation slow = simulate(ScheduleKind::kRing, s, options);
  EXPECT_LT(slow.efficiency, 0.9);
  EXPECT_GT(slow.ranks[2].transfer_s, 0);
  EXPECT_LT(slow.ranks[1].transfer_s, 0.1 * slow.ranks[2].transfer_s);
  EXPECT_LT(slow.ranks[3].transfer_s, 0.1 * slow.ranks[2].transfer_s);  // over a fast link, but late
  EXPECT_GT(slow.ranks[3].late_s, 0);
}

// As the executor has it: had the block been sent when there was room for it, it would have come while rank 1
// computed, so all the waiting is its sender's, its way included.
TEST(Simulate, WaitingForALateBlockThatWouldHaveBeenHiddenIsLate) {
  const Machine machine = round_machine();
  Workload w = attention(16384, 16384, 1, 1);
  w.layers = 2;
  const Setting s(machine, w, {2, 4, {}});
  const double step = simulate(ScheduleKind::kRing, s, {}).total_s / 4;  // nothing is exposed
  const double hop = s.network().hop_s(0, static_cast<double>(s.slice_keys() * s.key_bytes()));
  ASSERT_LT(hop, step);
  SimulationOptions options;
  options.faults.ranks = {{0, 4.0}};
  const RankTimes rank = simulate(ScheduleKind::kRing, s, options).ranks[1];
  // From three steps of its own to two of rank 0.
  EXPECT_NEAR(rank.late_s, 5 * step + hop, 1e-12);
  EXPECT_EQ(rank.transfer_s, 0);
}

TEST(Simulate, AStoppedRankIsNoticedByItsNeighbour) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(16384, 16384, 1, 1), {4, 4, {}});
  SimulationOptions options;
  options.timeout_s = 5;
  options.faults.stops = {{2, 0.01}};
  const Simulation played = simulate(ScheduleKind::kRing, s, options);
  ASSERT_TRUE(played.stall);
  EXPECT_EQ(played.stall->peer, 2);
  EXPECT_TRUE(played.stall->rank == 3 || played.stall->rank == 1);
  EXPECT_GE(played.stall->at_s, 5.01);
  EXPECT_LT(played.stall->at_s, 5.05);
  options.faults.stops = {{2, 1000}};
  EXPECT_FALSE(simulate(ScheduleKind::kRing, s, options).stall);
}

TEST(Simulate, JitterIsRepeatableAndOnlySlows) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(8192, 8192, 4, 4), {8, 4, {}});
  SimulationOptions options;
  options.jitter = 0.2;
  const double once = simulate(ScheduleKind::kRing, s, options).total_s;
  EXPECT_EQ(simulate(ScheduleKind::kRing, s, options).total_s, once);
  options.seed = 1;
  EXPECT_NE(simulate(ScheduleKind::kRing, s, options).total_s, once);
  const double steady = simulate(ScheduleKind::kRing, s, {}).total_s;
  EXPECT_GT(once, steady);
  EXPECT_LT(once, 1.2 * steady + 1e-9);
}

// Four ranks whose transfers share one link's worth: as if each link had a quarter.
TEST(Simulate, ASharedBusIsShared) {
  Machine machine = round_machine();
  const Workload w = attention(2048, 2048, 1, 1);
  machine.within_node_links.value = 1;
  const Setting shared(machine, w, {4, 4, {}});
  Machine quarter = round_machine();
  quarter.within_node.bytes_per_s.value /= 4;
  const Setting slow(quarter, w, {4, 4, {}});
  EXPECT_NEAR(simulate(ScheduleKind::kRing, shared, {}).total_s,
              simulate(ScheduleKind::kRing, slow, {}).total_s, 1e-12);
  EXPECT_NEAR(price_schedule(ScheduleKind::kRing, shared).total_s,
              price_schedule(ScheduleKind::kRing, slow).total_s, 1e-12);
}

TEST(Simulate, ManyLapsAreThoseOfTheFirst) {
  const Machine machine = round_machine();
  Workload w = attention(16384, 16384, 1, 1);
  w.layers = 50;
  const Setting s(machine, w, {16, 4, {}});
  SimulationOptions options;
  options.most_steps = 16 * 16 * 10;
  const Simulation some = simulate(ScheduleKind::kRing, s, options),
                   all = simulate(ScheduleKind::kRing, s, {});
  EXPECT_EQ(some.laps_played, 10);
  EXPECT_EQ(all.laps_played, 50);
  EXPECT_NEAR(some.total_s, all.total_s, 1e-6 * all.total_s);
}

TEST(Simulate, WhatDoesNotFitIntoMemoryIsRefused) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(64 * 512, 64 * 512, 64, 64), {64, 4, {}});
  SimulationOptions options;
  const auto refusal = [&](ScheduleKind kind) -> std::string {
    try {
      simulate(kind, s, options);
      return "";
    } catch (const OutOfBudget& error) {
      return error.what();
    }
  };
  options.memory_bytes = 5e5;  // 64^2 parcels posted at once take more than a hundred bytes each
  EXPECT_EQ(refusal(ScheduleKind::kRing), "");
  const std::string all_gather = refusal(ScheduleKind::kAllGather);
  EXPECT_THAT(all_gather, testing::HasSubstr("simulating all-gather on 64 ranks takes up to 1."));
  EXPECT_THAT(all_gather, testing::HasSubstr("and there are 500 KB; simulate at most 40 ranks"));
  EXPECT_THAT(all_gather, testing::HasSubstr(", or schedule ring"));
  options.memory_bytes = 1e5;
  EXPECT_THAT(refusal(ScheduleKind::kRing), testing::EndsWith("ranks"));
}

TEST(Simulate, FaultsOfNobodyAreRefused) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(4096, 4096, 1, 1), {4, 4, {}});
  SimulationOptions options;
  options.faults.ranks = {{4, 2.0}};
  EXPECT_THROW(simulate(ScheduleKind::kRing, s, options), InvalidArgument);
  options.faults.ranks = {{1, -2.0}};
  EXPECT_THROW(simulate(ScheduleKind::kRing, s, options), InvalidArgument);
}

}  // namespace
}  // namespace kvring
