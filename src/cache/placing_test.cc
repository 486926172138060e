#include "cache/placing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "layout/checks.h"

namespace kvring {
namespace {

RC_GTEST_PROP(Placing, TurnsOfAnyLengthKeepShardsEvenAndTilesWhole, ()) {
  const int ranks = *rc::gen::inRange(1, 9);
  const auto tile = *rc::gen::inRange<std::int64_t>(1, 9);
  const auto turns = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 200));
  Placing placing(ranks, tile);
  std::int64_t tokens = 0;
  for (const std::int64_t turn : turns) {
    const std::vector<Shard> parts = placing.extend(turn);
    std::int64_t placed = 0;
    for (const Shard& part : parts) {
      placed += part.tokens();
      for (const Range& range : part.ranges()) RC_ASSERT(range.begin >= tokens && range.end <= tokens + turn);
    }
    RC_ASSERT(placed == turn);
    tokens += turn;
    const Layout layout = placing.layout();
    RC_ASSERT(layout.tokens == tokens);
    check_layout("key", layout, {}, tile);  // each position once, and whole tiles
    std::int64_t least = tokens, most = 0;
    for (const Shard& shard : layout.shards) {
      least = std::min(least, shard.tokens());
      most = std::max(most, shard.tokens());
      // Rows stay where they are when more come: positions rise.
      RC_ASSERT(std::is_sorted(shard.ranges().begin(), shard.ranges().end(),
                               [](const Range& a, const Range& b) { return a.begin < b.begin; }));
    }
    RC_ASSERT(most - least <= tile);
    RC_ASSERT(most <= most_rows(tokens, ranks, tile));
  }
}

TEST(Placing, ALongTurnIsAZigzag) {
  Placing placing(2, 4);
  const std::vector<Shard> parts = placing.extend(4 * 8 + 3);
  EXPECT_EQ(parts[0].ranges(), (std::vector<Range>{{0, 8}, {24, 35}}));
  EXPECT_EQ(parts[1].ranges(), (std::vector<Range>{{8, 24}}));
  EXPECT_EQ(placing.extend(1)[0].ranges(), (std::vector<Range>{{35, 36}}));  // the tile that is not full
  EXPECT_EQ(placing.extend(1)[1].ranges(), (std::vector<Range>{{36, 37}}));  // who holds least
}

}  // namespace
}  // namespace kvring
