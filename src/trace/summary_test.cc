#include "trace/summary.h"

#include <gtest/gtest.h>

#include "trace/test_support.h"

namespace kvring {
namespace {

TEST(SummarizeTrace, AddsUpTheTimeOfEachRank) {
  Trace trace = sample_trace(4);
  // Rank 2 has nothing to do from half of the run on.
  auto& operations = trace.ranks[2].operations;
  std::erase_if(operations, [](const Operation& o) { return o.lap == 1; });
  const TraceSummary summary = summarize(trace);
  const double busy = (100 + 4 * 1000 + 75) * 1e-9;
  EXPECT_NEAR(summary.wall_s, 2 * (busy + 3 * 250e-9) + 25e-9, 1e-12);
  EXPECT_NEAR(summary.ranks[0].busy_s, 2 * busy, 1e-12);
  EXPECT_NEAR(summary.ranks[0].exposed_late_s, 6 * 200e-9, 1e-12);
  EXPECT_NEAR(summary.ranks[0].exposed_transfer_s, 6 * 50e-9, 1e-12);
  EXPECT_NEAR(summary.ranks[0].exposed_send_s, 25e-9, 1e-12);
  EXPECT_NEAR(summary.ranks[0].idle_s, 0, 1e-12);
  EXPECT_NEAR(summary.ranks[0].efficiency, 2 * busy / summary.wall_s, 1e-9);
  EXPECT_NEAR(summary.ranks[2].busy_s, busy, 1e-12);
  EXPECT_NEAR(summary.ranks[2].idle_s, busy + 3 * 250e-9 + 25e-9, 1e-12);
  EXPECT_NEAR(summary.efficiency, (3 * 2 * busy + busy) / 4 / summary.wall_s, 1e-9);
}

TEST(SummarizeTrace, ARunOfNothingLosesNoTime) {
  Trace trace;
  trace.ranks.resize(2);
  const TraceSummary summary = summarize(trace);
  EXPECT_EQ(summary.wall_s, 0);
  EXPECT_EQ(summary.ranks[1].idle_s, 0);
  EXPECT_EQ(summary.efficiency, 1);
}

}  // namespace
}  // namespace kvring
