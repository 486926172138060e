#include "cli/give_up.h"

#include <gtest/gtest.h>

#include "cli/message.h"

namespace kvring::cli {
namespace {

using namespace std::chrono_literals;

TEST(GiveUp, EndsAProcessThatIsStillInACall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const GiveUp give_up(20ms, 4, [] { message("not back yet\n"); });
        std::this_thread::sleep_for(10s);
      },
      testing::ExitedWithCode(4), "not back yet");
}

TEST(GiveUp, DoesNothingToACallThatReturns) {
  bool spoken = false;
  {
    const GiveUp give_up(60s, 4, [&] { spoken = true; });
  }
  EXPECT_FALSE(spoken);
}

}  // namespace
}  // namespace kvring::cli
