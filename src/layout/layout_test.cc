#include "kvring/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <numeric>

#include "kvring/error.h"
#include "kvring/ring.h"
#include "tests/support/random_problem.h"

namespace kvring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LayoutSpec kContiguous{LayoutKind::kContiguous, 0, Cut::kTiles};
constexpr LayoutSpec kZigzag{LayoutKind::kZigzag, 0, Cut::kTiles};
constexpr LayoutSpec kStriped{LayoutKind::kStriped, 0, Cut::kTiles};

template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

struct Cutting {
  LayoutSpec spec;
  std::int64_t tokens;
  std::vector<std::int64_t> cu_seqlens;
  std::int64_t tile;
  int ranks;
};

Cutting random_cutting(test::Rng& rng) {
  Cutting c{{}, test::random_length(rng, 60), {}, rng.between(1, 8), static_cast<int>(rng.between(1, 12))};
  if (rng.chance(0.4)) {
    c.cu_seqlens = test::random_cu_seqlens(rng, rng.between(1, 6), 15);
    c.tokens = c.cu_seqlens.back();
  }
  c.spec.kind = std::array{LayoutKind::kContiguous, LayoutKind::kZigzag,
                           LayoutKind::kStriped}[static_cast<std::size_t>(rng.between(0, 2))];
  c.spec.cut = rng.chance(0.5) ? Cut::kTiles : Cut::kTokens;
  if (c.spec.kind == LayoutKind::kStriped && rng.chance(0.7))
    c.spec.stripe = rng.between(1, 3) * (c.spec.cut == Cut::kTiles ? c.tile : 1);
  return c;
}

Layout make(const Cutting& c) { return make_layout(c.spec, c.tokens, c.cu_seqlens, c.tile, c.ranks); }

// Every token belongs to one rank, and tile_aligned says whether any tile is shared.
RC_GTEST_PROP(Layout, EveryTokenHasOneOwner, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Cutting c = random_cutting(rng);
  const Layout layout = make(c);
  RC_ASSERT(std::ssize(layout.shards) == c.ranks);
  std::vector<int> owner(static_cast<std::size_t>(c.tokens), -1);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Shard& shard = layout.shards[static_cast<std::size_t>(rank)];
    for (std::int64_t i = 0; i < shard.tokens(); ++i) {
      int& o = owner.at(static_cast<std::size_t>(shard.position(i)));
      RC_ASSERT(o == -1);
      o = rank;
    }
  }
  RC_ASSERT(std::find(owner.begin(), owner.end(), -1) == owner.end());
  bool tile_shared = false;
  const auto grid = tile_grid(c.tokens, c.cu_seqlens, c.tile);
  for (std::size_t i = 1; i < grid.size(); ++i) {
    for (std::int64_t p = grid[i - 1]; p < grid[i]; ++p)
      tile_shared |= owner[static_cast<std::size_t>(p)] != owner[static_cast<std::size_t>(grid[i - 1])];
  }
  RC_ASSERT(layout.tile_aligned == !tile_shared);
  RC_ASSERT(c.spec.cut == Cut::kTokens || layout.tile_aligned);
}

RC_GTEST_PROP(Layout, ShardsDifferByAtMostOneUnitPerRun, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  Cutting c = random_cutting(rng);
  c.spec.stripe = 0;
  c.spec.cut = Cut::kTokens;
  const std::int64_t slack = c.spec.kind == LayoutKind::kContiguous ? 1
                             : c.spec.kind == LayoutKind::kZigzag   ? 2
                                                                    : c.tile;
  std::int64_t least = c.tokens, most = 0;
  for (const Shard& shard : make(c).shards) {
    least = std::min(least, shard.tokens());
    most = std::max(most, shard.tokens());
  }
  RC_ASSERT(most - least <= slack);
}

TEST(Layout, TileGridRestartsAtEachDocument) {
  EXPECT_THAT(tile_grid(0, {}, 4), ElementsAre(0));
  EXPECT_THAT(tile_grid(8, {}, 4), ElementsAre(0, 4, 8));
  EXPECT_THAT(tile_grid(9, {}, 4), ElementsAre(0, 4, 8, 9));
  EXPECT_THAT(tile_grid(3, {}, 4), ElementsAre(0, 3));
  EXPECT_THAT(tile_grid(12, {0, 0, 5, 5, 12, 12}, 4), ElementsAre(0, 4, 5, 9, 12));
}

TEST(Layout, Contiguous) {
  const Layout layout = make_layout(kContiguous, 10, {}, 2, 3);  // 5 tiles: 1, 2, 2
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{0, 2}));
  EXPECT_THAT(layout.shards[1].ranges(), ElementsAre(Range{2, 6}));
  EXPECT_THAT(layout.shards[2].ranges(), ElementsAre(Range{6, 10}));
}

TEST(Layout, ZigzagFoldsTheSequence) {
  const Layout layout = make_layout(kZigzag, 16, {}, 2, 4);
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{0, 2}, Range{14, 16}));
  EXPECT_THAT(layout.shards[1].ranges(), ElementsAre(Range{2, 4}, Range{12, 14}));
  EXPECT_THAT(layout.shards[3].ranges(), ElementsAre(Range{6, 10}));
}

TEST(Layout, Striped) {
  Layout layout = make_layout(kStriped, 11, {}, 2, 2);
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{0, 2}, Range{4, 6}, Range{8, 10}));
  EXPECT_THAT(layout.shards[1].ranges(), ElementsAre(Range{2, 4}, Range{6, 8}, Range{10, 11}));
  layout = make_layout({LayoutKind::kStriped, 1, Cut::kTokens}, 4, {}, 512, 2);
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{0, 1}, Range{2, 3}));
  EXPECT_FALSE(layout.tile_aligned);
  // With documents a stripe is so many tiles, however short.
  layout = make_layout({LayoutKind::kStriped, 4, Cut::kTiles}, 12, {0, 5, 12}, 4, 2);
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{0, 4}, Range{5, 9}));
  layout = make_layout({LayoutKind::kStriped, std::numeric_limits<std::int64_t>::max(), Cut::kTokens}, 4, {},
                       2, 2);
  EXPECT_EQ(layout.shards[0].tokens(), 4);
}

TEST(Layout, SequenceLengthSevenOverTwoRanksComputedAsSix) {
  const Layout layout = make_layout({LayoutKind::kZigzag, 0, Cut::kTokens}, 7, {}, 512, 2);
  EXPECT_EQ(layout.shards[0].tokens() + layout.shards[1].tokens(), 7);
}

TEST(Layout, ShorterThanTheRing) {
  for (const LayoutSpec& spec : {kContiguous, kZigzag, kStriped}) {
    for (std::int64_t tokens : {0, 1, 3, 1025}) {
      const Layout layout = make_layout(spec, tokens, {}, 1, 1024);
      std::int64_t sum = 0;
      for (const Shard& shard : layout.shards) sum += shard.tokens();
      EXPECT_EQ(sum, tokens);
      EXPECT_EQ(layout.shards.size(), 1024u);
    }
  }
}

TEST(Layout, IndexArithmeticDoesNotWrap) {
  const std::int64_t tokens = (std::int64_t{1} << 60) + 12345;
  std::vector<std::vector<std::int64_t>> none(1);
  EXPECT_THAT(refusal([&] { custom_layout(none, tokens, {}, 512); }),
              HasSubstr("position 0 appears on no rank"));
  const LayoutSpec by_tokens{LayoutKind::kZigzag, 0, Cut::kTokens};
  const Layout zigzag = make_layout(by_tokens, tokens, {}, 512, 1024);
  // floor(1023 T / 2048) and floor(1025 T / 2048): the products need more than 64 bits.
  EXPECT_THAT(zigzag.shards[1023].ranges(), ElementsAre(Range{575897802350008342, 577023702256850978}));
  const std::int64_t wide = std::int64_t{1} << 33;
  const Layout layout = make_layout(kContiguous, wide + 1, {}, 32768, 1024);
  EXPECT_EQ(layout.shards.back().ranges().back().end, wide + 1);
  EXPECT_EQ(layout.shards[512].ranges().front().begin, wide / 2);
}

TEST(Layout, RefusesNonsense) {
  const auto striped = [](std::int64_t stripe) {
    return LayoutSpec{LayoutKind::kStriped, stripe, Cut::kTiles};
  };
  EXPECT_THAT(refusal([&] { make_layout(striped(10), 100, {}, 4, 2); }), HasSubstr("use 8 or 12"));
  EXPECT_THAT(refusal([&] { make_layout(striped(3), 100, {}, 4, 2); }), HasSubstr("use 4 or 8"));
  EXPECT_THAT(refusal([&] { make_layout(striped(-4), 100, {}, 4, 2); }), HasSubstr("stripe is -4"));
  EXPECT_THAT(refusal([&] {
                make_layout({LayoutKind::kZigzag, 4, Cut::kTiles}, 9, {}, 4, 2);
              }),
              HasSubstr("stripe is 4 but the layout is zigzag"));
  EXPECT_THAT(refusal([&] {
                make_layout({LayoutKind::kCustom, 0, Cut::kTiles}, 9, {}, 4, 2);
              }),
              HasSubstr("custom_layout()"));
  EXPECT_THAT(refusal([&] { make_layout(kZigzag, 9, {}, 4, 0); }), HasSubstr("ranks is 0"));
  EXPECT_THAT(refusal([&] { make_layout(kZigzag, -1, {}, 4, 1); }), HasSubstr("tokens is -1"));
  EXPECT_THAT(refusal([&] { make_layout(kZigzag, 9, {}, 0, 1); }), HasSubstr("tile is 0"));
  EXPECT_THAT(refusal([&] { make_layout(kZigzag, 9, {0, 8}, 4, 1); }), HasSubstr("ends at 8"));
}

TEST(CustomLayout, KeepsTheOrderOfTheCaller) {
  const Layout layout = custom_layout({{4, 5, 0, 1}, {}, {2, 3}}, 6, {}, 2);
  EXPECT_EQ(layout.spec.kind, LayoutKind::kCustom);
  EXPECT_THAT(layout.shards[0].ranges(), ElementsAre(Range{4, 6}, Range{0, 2}));
  EXPECT_THAT(layout.shards[1].ranges(), IsEmpty());
  EXPECT_TRUE(layout.tile_aligned);
  EXPECT_FALSE(custom_layout({{0, 1, 2}, {3}}, 4, {}, 2).tile_aligned);
  EXPECT_TRUE(custom_layout({{0, 1, 2}, {3}}, 4, {0, 3, 4}, 4).tile_aligned);
  // Whole tiles, but not in order: no promise.
  EXPECT_FALSE(custom_layout({{1, 0}, {2, 3}}, 4, {}, 2).tile_aligned);
}

TEST(CustomLayout, NamesTheFirstPositionThatIsNotThereExactlyOnce) {
  const auto message = [](std::vector<std::vector<std::int64_t>> positions, std::int64_t tokens) {
    return refusal([&] { custom_layout(positions, tokens, {}, 2); });
  };
  EXPECT_EQ(message({{0, 1}, {2}}, 3), "");
  EXPECT_EQ(message({{}}, 0), "");
  EXPECT_THAT(message({{0}, {2}}, 3), HasSubstr("position 1 appears on no rank"));
  EXPECT_THAT(message({{0, 1}, {1, 2}}, 3), HasSubstr("position 1 appears more than once"));
  EXPECT_THAT(message({{0, 3, 3}, {2}}, 4), HasSubstr("position 1 appears on no rank"));
  EXPECT_THAT(message({{9, 9}}, 10), HasSubstr("position 0 appears on no rank"));
  EXPECT_THAT(message({{0}, {3}}, 3), HasSubstr("rank 1 lists position 3"));
  EXPECT_THAT(message({{-1}}, 3), HasSubstr("rank 0 lists position -1"));
  EXPECT_THAT(message({}, 0), HasSubstr("0 ranks"));
}

TEST(Layouts, EachSideHasItsOwnLengthAndDocuments) {
  Problem p;
  p.q_len = 4;
  p.kv_len = 9;
  p.cu_seqlens_q = {0, 4, 4};
  p.cu_seqlens_kv = {0, 3, 9};
  p.tile = 4;
  const Layouts layouts = make_layouts(kContiguous, p, 3);
  EXPECT_EQ(layouts.q.tokens, 4);
  EXPECT_EQ(layouts.kv.tokens, 9);
  EXPECT_THAT(layouts.kv.shards[0].ranges(), ElementsAre(Range{0, 3}));
  EXPECT_THAT(layouts.kv.shards[1].ranges(), ElementsAre(Range{3, 7}));
}

}  // namespace
}  // namespace kvring
