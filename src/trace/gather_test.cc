#include "trace/gather.h"

#include <gtest/gtest.h>

#include <thread>

#include "trace/test_support.h"

namespace kvring {
namespace {

bool same(const Operation& a, const Operation& b) {
  return a.what == b.what && a.block == b.block && a.call == b.call && a.lap == b.lap && a.step == b.step &&
         a.peer == b.peer && a.bytes == b.bytes && a.posted == b.posted && a.began == b.began &&
         a.done == b.done && a.tiles == b.tiles;
}

// The ranks' own clocks read an hour when the run starts.
TEST(GatherTraces, BringsAllOfEveryRankToTheStartOfTheRun) {
  constexpr std::chrono::hours kStart(1);
  const Trace expected = sample_trace(3);
  const auto ends = make_inproc_transports(3, 30);
  std::vector<RankTrace> ranks;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      MyTrace mine{time_barriers(*ends[r]), expected.ranks[r].tiles, expected.ranks[r].operations};
      for (Operation& o : mine.operations) {
        o.posted += kStart;
        if (o.began) *o.began += kStart;
        if (o.done) *o.done += kStart;
      }
      if (r == 1) mine.operations.back().done.reset();  // under way: over with what ended last
      auto all = gather_traces(*ends[r], mine);
      if (r == 0)
        ranks = std::move(all);
      else
        EXPECT_TRUE(all.empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(ranks.size(), 3u);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks[r].clock_error_s, 0);
    EXPECT_EQ(ranks[r].tiles, expected.ranks[r].tiles);
    ASSERT_EQ(ranks[r].operations.size(), expected.ranks[r].operations.size());
    for (std::size_t i = 0; i + 1 < ranks[r].operations.size(); ++i)
      EXPECT_TRUE(same(ranks[r].operations[i], expected.ranks[r].operations[i])) << r << ' ' << i;
  }
  EXPECT_EQ(ranks[1].operations.back().done, ranks[1].operations.back().posted);
}

}  // namespace
}  // namespace kvring
