#include <gtest/gtest.h>

#include <limits>

#include "kvring/error.h"
#include "schedule/step.h"

namespace kvring {
namespace {

TEST(Laps, CoverAllUnitsOnce) {
  Problem p;
  p.batch = 3;
  p.q_heads = p.kv_heads = 5;
  for (std::int64_t width : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{15},
                             std::numeric_limits<std::int64_t>::max()}) {
    std::int64_t next = 0;
    for (const Lap& lap : make_laps(p, width)) {
      EXPECT_EQ(lap.kv_begin, next);
      EXPECT_GT(lap.kv_end, lap.kv_begin);
      EXPECT_TRUE(lap.kv_end - lap.kv_begin == width || lap.kv_end == 15);
      next = lap.kv_end;
    }
    EXPECT_EQ(next, 15);
  }
  EXPECT_THROW(make_laps(p, 0), InvalidArgument);
  EXPECT_THROW(make_laps(p, -1), InvalidArgument);
}

}  // namespace
}  // namespace kvring
