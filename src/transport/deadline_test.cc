#include "transport/deadline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvring/error.h"

namespace kvring {
namespace {

using std::chrono::milliseconds;

TEST(ProgressClock, CountsFromTheLastSignOfLife) {
  const ProgressClock::Clock::time_point start{};
  const ProgressClock clock(10.0, start);
  const auto began = start + std::chrono::seconds(5);
  EXPECT_EQ(clock.expiry(began), began + std::chrono::seconds(10));  // silence before a wait is no silence

  ProgressClock quick(0.1, start);
  quick.note(start + milliseconds(30));
  EXPECT_EQ(quick.expiry(start), start + milliseconds(130));
}

TEST(ProgressClock, RefusesDeadlinesThatAreNone) {
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e7})
    EXPECT_THROW(ProgressClock(bad, {}), InvalidArgument);
}

TEST(TimeoutText, SaysWhoWaitsForWhat) {
  EXPECT_EQ(timeout_text(3, std::chrono::milliseconds(30020), "block 5 (lap 2, step 4 of 8)", from_rank(2)),
            "rank 3 waited 30.0 s for block 5 (lap 2, step 4 of 8) from rank 2");
}

}  // namespace
}  // namespace kvring
