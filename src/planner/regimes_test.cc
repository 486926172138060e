#include "planner/regimes.h"

#include <gmock/gmock.h>

#include "kvring/error.h"
#include "planner/test_support.h"

namespace kvring {
namespace {

using testing::HasSubstr;

PlanQuery query_of(std::int64_t queries, std::int64_t keys) {
  PlanQuery query;
  query.machine = round_machine();
  query.workload = attention(queries, keys, 4, 2);
  return query;
}

TEST(Regimes, TheRingWinsRightOfBreakEven) {
  const Regimes r = make_regimes(query_of(1 << 16, 1 << 16), {8, 4, {}});
  ASSERT_EQ(r.winner.size(), r.slices.size());
  ASSERT_EQ(r.break_even.size(), r.bytes_per_s.size());
  for (std::size_t i = 0; i < r.slices.size(); ++i) {
    for (std::size_t j = 0; j < r.bytes_per_s.size(); ++j) {
      if (r.slices[i] < 2 * r.break_even[j]) continue;
      EXPECT_EQ(r.names[static_cast<std::size_t>(r.winner[i][j])], "ring")
          << r.slices[i] << " " << r.bytes_per_s[j];
    }
  }
  for (std::size_t j = 1; j < r.break_even.size(); ++j) EXPECT_LE(r.break_even[j], r.break_even[j - 1]);
}

TEST(Regimes, DrawsWhatWinsAndTheBreakEvenLine) {
  const std::string svg = regimes_svg(make_regimes(query_of(1024, 1 << 20), {8, 4, {}}));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, HasSubstr(">break-even<"));
  EXPECT_THAT(svg, HasSubstr("<polyline"));
  EXPECT_THAT(svg, HasSubstr("this plan: 128"));
  EXPECT_THAT(svg, testing::Not(HasSubstr("nan")));
}

// Links of any speed leave computing ranks the same share: half of it hides half as much.
TEST(Regimes, WhatComputingLeavesOfALinkKeepsItsShare) {
  PlanQuery query = query_of(1 << 16, 1 << 16);
  const Regimes whole = make_regimes(query, {8, 4, {}});
  query.machine.within_node.computing_bytes_per_s.value = 5e9;
  query.machine.between_nodes->computing_bytes_per_s.value = 5e8;
  const Regimes half = make_regimes(query, {8, 4, {}});
  for (std::size_t j = 0; j < whole.break_even.size(); ++j)
    EXPECT_NEAR(static_cast<double>(half.break_even[j]), 2.0 * static_cast<double>(whole.break_even[j]), 2)
        << whole.bytes_per_s[j];
}

TEST(Regimes, NeedARing) { EXPECT_THROW(make_regimes(query_of(64, 64), {1, 4, {}}), InvalidArgument); }

}  // namespace
}  // namespace kvring
