// What a simulation tells of its ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "kvring/error.h"
#include "planner/simulate.h"
#include "planner/test_support.h"

namespace kvring {
namespace {

using What = Operation::What;

Workload causal(std::int64_t tokens, std::int64_t heads, std::int64_t layers) {
  Workload w = attention(tokens, tokens, heads, heads);
  w.problem.causal = true;
  w.layers = layers;
  return w;
}

struct Told {
  Simulation simulation;
  std::vector<std::vector<Operation>> ranks;
};

Told play(ScheduleKind kind, const Setting& s, SimulationOptions options) {
  Told told;
  told.ranks.resize(static_cast<std::size_t>(s.ranks()));
  options.tell = [&](int rank, const Operation& o) {
    told.ranks[static_cast<std::size_t>(rank)].push_back(o);
  };
  told.simulation = simulate(kind, s, options);
  return told;
}

double seconds(Operation::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// A straggler, jitter and nodes with slow links: all kinds of waits.
SimulationOptions uneven() {
  SimulationOptions options;
  options.jitter = 0.3;
  options.faults.ranks = {{2, 3.0}};
  return options;
}

class Tell : public testing::TestWithParam<ScheduleKind> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Tell, testing::ValuesIn(kSchedules), [](const auto& schedule) {
  std::string name = schedule_name(schedule.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Tell, SumsAreTheTimesOfTheRanks) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 8, 2), {8, 4, {}});
  const Told told = play(GetParam(), s, uneven());
  EXPECT_EQ(told.simulation.laps_told, told.simulation.laps);
  for (std::size_t r = 0; r < 8; ++r) {
    std::map<What, double> sum;
    double end = 0;
    for (const Operation& o : told.ranks[r]) {
      sum[o.what] += seconds(*o.done - o.posted);
      if (o.what != What::kSend) end = std::max(end, seconds(o.done->time_since_epoch()));
    }
    const RankTimes& times = told.simulation.ranks[r];
    const double rounding = 1e-9 * static_cast<double>(told.ranks[r].size());
    EXPECT_NEAR(sum[What::kAttend] + sum[What::kMerge], times.compute_s, rounding);
    EXPECT_NEAR(sum[What::kWaitLate], times.late_s, rounding);
    EXPECT_NEAR(sum[What::kWaitTransfer], times.transfer_s, rounding);
    EXPECT_NEAR(sum[What::kWaitSend], times.send_s, rounding);
    EXPECT_NEAR(end, times.end_s, 1e-9);
  }
}

TEST_P(Tell, BothEndsOfEveryMessage) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 8, 2), {8, 4, {}});
  const Told told = play(GetParam(), s, uneven());
  using Key = std::tuple<int, int, std::uint32_t, std::uint32_t, int, int, Cargo, std::int64_t>;
  std::map<Key, std::pair<int, int>> ends;  // sends and receives
  for (int rank = 0; rank < 8; ++rank) {
    for (const Operation& o : told.ranks[static_cast<std::size_t>(rank)]) {
      EXPECT_LT(o.call, 2u);
      if (o.what == What::kSend)
        ++ends[{rank, o.peer, o.call, o.lap, o.step, o.block, o.cargo, o.bytes}].first;
      if (o.what == What::kReceive)
        ++ends[{o.peer, rank, o.call, o.lap, o.step, o.block, o.cargo, o.bytes}].second;
      if (o.what != What::kSend && o.what != What::kReceive) continue;
      EXPECT_GT(o.bytes, 0);
      EXPECT_LT(*o.began, *o.done);
      EXPECT_LE(o.posted, *o.done);
    }
  }
  std::int64_t sent = 0;
  for (const std::int64_t parcels : s.of(GetParam()).work.sent) sent += parcels;
  EXPECT_EQ(std::ssize(ends), sent * told.simulation.laps);
  for (const auto& [key, count] : ends) EXPECT_EQ(count, std::pair(1, 1));
}

TEST_P(Tell, ARankDoesOneThingAtATime) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 8, 2), {8, 4, {}});
  for (std::vector<Operation>& operations : play(GetParam(), s, uneven()).ranks) {
    std::erase_if(operations,
                  [](const Operation& o) { return o.what == What::kSend || o.what == What::kReceive; });
    std::ranges::stable_sort(operations, {}, &Operation::posted);
    Operation::Clock::time_point now{};
    for (const Operation& o : operations) {
      EXPECT_GE(o.posted, now) << operation_name(o.what);
      now = *o.done;
    }
  }
}

TEST_P(Tell, ListeningChangesNothing) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 8, 1), {8, 4, {}});
  const Simulation alone = simulate(GetParam(), s, uneven());
  EXPECT_EQ(play(GetParam(), s, uneven()).simulation.total_s, alone.total_s);
  EXPECT_EQ(alone.laps_told, 0);
}

TEST(Tell, OfTheFirstLapsAsManyAsFit) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 1, 10), {4, 4, {}});
  SimulationOptions options;
  options.most_told = 4 * (4 + 3 * 3) * 3;  // ranks, steps, messages sent, received and waited for; laps
  const Told told = play(ScheduleKind::kRing, s, options);
  EXPECT_EQ(told.simulation.laps_told, 3);
  EXPECT_EQ(told.simulation.laps, 10);
  std::uint32_t last = 0;
  for (const Operation& o : told.ranks[0]) last = std::max(last, o.call);
  EXPECT_EQ(last, 2u);
  options.most_told = 4 * (4 + 3 * 3) - 1;
  try {
    play(ScheduleKind::kRing, s, options);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("about 52 operations"));
    EXPECT_THAT(error.what(), testing::HasSubstr("at most 3 ranks"));
  }
}

// It never ends what it is at.
TEST(Tell, AStoppedRankComputesUntilItStops) {
  const Machine machine = round_machine();
  const Setting s(machine, causal(16384, 1, 1), {4, 4, {}});
  SimulationOptions options;
  options.faults.stops = {{2, 0.0101}};
  const Told told = play(ScheduleKind::kRing, s, options);
  ASSERT_TRUE(told.simulation.stall);
  double end = 0;
  for (const Operation& o : told.ranks[2]) end = std::max(end, seconds(o.done->time_since_epoch()));
  EXPECT_NEAR(end, 0.0101, 1e-9);
}

}  // namespace
}  // namespace kvring
