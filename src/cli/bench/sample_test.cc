#include "cli/bench/sample.h"

#include <gmock/gmock.h>

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Samples, Median) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
  EXPECT_EQ(median_wall_s({{3, 1}, {1, 2}, {2, 3}}), 2);
  EXPECT_EQ(median_cpu_s({{3, 1}, {1, 5}, {2, 3}}), 3);
  EXPECT_EQ(median_own_s({{3, 1}, {1, 5}, {2, 3}}, 1), 3);
  EXPECT_EQ(median_own_s({{3, 1}, {1, 5}, {2, 3}}, 2), 2);
  EXPECT_EQ(least_own_s({{3, 2}, {1, 5}, {2, 3}}, 1), 2);
  EXPECT_EQ(least_own_s({{3, 2}, {1, 5}, {2, 3}}, 2), 1);
}

TEST(Samples, WorkIsDoneAsOftenAsSaid) {
  int runs = 0;
  const Sample sample = time_work([&] { ++runs; }, 7);
  EXPECT_EQ(runs, 7);
  EXPECT_GE(sample.wall_s, 0);
  EXPECT_GE(sample.cpu_s, 0);
}

TEST(Samples, MarksSayWhatCannotBeTrusted) {
  const Sample good{1.0, 0.95}, starved{1.0, 0.8};
  EXPECT_THAT(marks_of({100, 95}, good, 1), IsEmpty());
  EXPECT_THAT(marks_of({100, 85}, good, 1), ElementsAre("throttled"));
  EXPECT_THAT(marks_of({85, 100}, good, 1), ElementsAre("throttled"));
  EXPECT_THAT(marks_of({100, 95}, starved, 1), ElementsAre("shared"));
  EXPECT_THAT(marks_of({100, 85}, good, 2), ElementsAre("throttled", "shared"));
  EXPECT_EQ((Ceiling{85, 100}.value()), 100);
  EXPECT_EQ((Ceiling{100, 85}.value()), 100);
}

}  // namespace
}  // namespace kvring::cli
