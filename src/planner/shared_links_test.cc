#include "planner/shared_links.h"

#include <gtest/gtest.h>

#include <map>

namespace kvring {
namespace {

class Shared : public testing::Test {
 protected:
  void enter(double now, int id, SharedLinks::Ends ends, double bytes, double busy_until = 0) {
    links_.enter(now, id, ends, bytes, busy_until, [&](int other, double when) { end_[other] = when; });
  }
  void leave(double now, int id) {
    end_.erase(id);
    links_.leave(now, id, [&](int other, double when) { end_[other] = when; });
  }

  SharedLinks links_{3, 10, 1, 0.5};  // nodes, bytes per second, links of each, share beside computing
  std::map<int, double> end_;
};

TEST_F(Shared, OneMessageHasAWholeLink) {
  enter(1, 0, {0, 1}, 50);
  EXPECT_DOUBLE_EQ(end_[0], 6);
}

TEST_F(Shared, TwoOfANodeShareTheWayOut) {
  enter(0, 0, {0, 1}, 20);
  enter(1, 1, {0, 2}, 20);  // 10 of the first are left
  EXPECT_DOUBLE_EQ(end_[0], 3);
  EXPECT_DOUBLE_EQ(end_[1], 5);
  leave(3, 0);  // 10 of the second
  EXPECT_DOUBLE_EQ(end_[1], 4);
}

TEST_F(Shared, TwoIntoANodeShareTheWayIn) {
  enter(0, 0, {0, 2}, 20);
  enter(0, 1, {1, 2}, 10);
  EXPECT_DOUBLE_EQ(end_[1], 2);
  leave(2, 1);
  EXPECT_DOUBLE_EQ(end_[0], 3);
}

TEST_F(Shared, TheSmallerShareCounts) {
  enter(0, 0, {0, 2}, 30);
  enter(0, 1, {0, 2}, 30);
  enter(0, 2, {1, 2}, 30);  // a third of the way in
  enter(0, 3, {1, 0}, 30);  // half of the way out, and what the other leaves of it stays unused
  EXPECT_DOUBLE_EQ(end_[0], 9);
  EXPECT_DOUBLE_EQ(end_[2], 9);
  EXPECT_DOUBLE_EQ(end_[3], 6);
}

TEST_F(Shared, BesideComputingAMessageHasAShareOfItsShare) {
  enter(0, 0, {0, 1}, 20, 1);  // 5 until then
  EXPECT_DOUBLE_EQ(end_[0], 2.5);
  enter(0.5, 1, {0, 1}, 5, 9);  // 17.5 of the first are left; 5 per second for each, half of that while busy
  EXPECT_DOUBLE_EQ(end_[0], 0.5 + 17.5 / 5 + 0.5 * 0.5);
  EXPECT_DOUBLE_EQ(end_[1], 0.5 + 5 / 2.5);
  leave(2.5, 1);
  EXPECT_DOUBLE_EQ(end_[0], 2.5 + (17.5 - 0.5 * 2.5 - 1.5 * 5) / 10);
}

TEST(SharedLinks, SeveralHaveWholeLinksUpToSoMany) {
  SharedLinks links(2, 10, 2, 1);
  std::map<int, double> end;
  const auto ends_at = [&](int id, double when) { end[id] = when; };
  links.enter(0, 7, {0, 1}, 20, 0, ends_at);
  links.enter(0, 8, {0, 1}, 20, 0, ends_at);
  EXPECT_DOUBLE_EQ(end[7], 2);
  EXPECT_DOUBLE_EQ(end[8], 2);
  links.enter(0, 9, {0, 1}, 20, 0, ends_at);
  EXPECT_DOUBLE_EQ(end[7], 3);
  EXPECT_DOUBLE_EQ(end[9], 3);
}

}  // namespace
}  // namespace kvring
