#include "trace/align.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

namespace kvring {
namespace {

// Whatever hosts' clocks show and however long messages take, what is said of an offset is true.
RC_GTEST_PROP(ClockOffsets, AreWithinTheirError, ()) {
  constexpr int kRanks = 6;
  const auto hosts = *rc::gen::container<std::vector<int>>(kRanks, rc::gen::inRange(0, 3));
  const auto shown =
      *rc::gen::container<std::vector<std::int64_t>>(3, rc::gen::inRange<std::int64_t>(-1000000, 1000000));
  std::vector<RankClock> ranks(kRanks);
  std::vector<std::int64_t> clock;  // minus true time
  for (std::size_t r = 0; r < kRanks; ++r) {
    ranks[r].clock = std::to_string(hosts[r]);
    clock.push_back(shown[static_cast<std::size_t>(hosts[r])]);
  }
  std::int64_t now = 0;
  for (int barrier = 0; barrier < 3; ++barrier) {
    const auto enters =
        *rc::gen::container<std::vector<std::int64_t>>(kRanks, rc::gen::inRange<std::int64_t>(0, 500));
    const auto leaves =
        *rc::gen::container<std::vector<std::int64_t>>(kRanks, rc::gen::inRange<std::int64_t>(0, 500));
    const std::int64_t met = now + *std::ranges::max_element(enters);
    for (std::size_t r = 0; r < kRanks; ++r)
      ranks[r].barriers.push_back({now + enters[r] + clock[r], met + leaves[r] + clock[r]});
    now = met + 500;
  }
  const std::vector<ClockOffset> offsets = clock_offsets(ranks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    RC_ASSERT(std::abs(offsets[r].offset - (clock[r] - clock[0])) <= offsets[r].error);
    RC_ASSERT(offsets[r].error <= 501);
    if (hosts[r] == hosts[0]) RC_ASSERT(offsets[r].error == 0);
  }
}

TEST(ClockOffsets, NeedNoBarrierOnOneHost) {
  const std::vector<ClockOffset> offsets = clock_offsets({{"a", {}}, {"a", {}}});
  EXPECT_EQ(offsets[1].offset, 0);
  EXPECT_EQ(offsets[1].error, 0);
  EXPECT_TRUE(clock_offsets({}).empty());
}

TEST(ClockOffsets, TimesBarriersOfAllRanks) {
  const auto ends = make_inproc_transports(1, 30);
  const std::vector<BarrierTimes> times = time_barriers(*ends[0]);
  ASSERT_FALSE(times.empty());
  for (const BarrierTimes& time : times) EXPECT_LE(time.entered, time.left);
  EXPECT_FALSE(clock_name().empty());
}

}  // namespace
}  // namespace kvring
