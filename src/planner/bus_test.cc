#include "planner/bus.h"

#include <gtest/gtest.h>

namespace kvring {
namespace {

TEST(Bus, OneTransferHasTheFullSpeed) {
  Bus bus(10, 2);
  bus.enter(1, 50, 7);
  EXPECT_DOUBLE_EQ(bus.next_end(), 6);
  EXPECT_EQ(bus.leave(6), 7);
  EXPECT_TRUE(bus.idle());
}

// Two of three places: at 3 transfers each has 2/3 of the speed.
TEST(Bus, MoreThanItHoldsShareEqually) {
  Bus bus(3, 2);
  bus.enter(0, 6, 0);
  bus.enter(0, 6, 1);
  EXPECT_DOUBLE_EQ(bus.next_end(), 2);
  bus.enter(1, 6, 2);  // 3 of the first two are left
  EXPECT_DOUBLE_EQ(bus.next_end(), 2.5);
  EXPECT_EQ(bus.leave(2.5), 0);
  EXPECT_DOUBLE_EQ(bus.next_end(), 2.5);
  EXPECT_EQ(bus.leave(2.5), 1);
  EXPECT_DOUBLE_EQ(bus.next_end(), 3.5);  // alone, 3 to go
  EXPECT_EQ(bus.leave(3.5), 2);
}

}  // namespace
}  // namespace kvring
