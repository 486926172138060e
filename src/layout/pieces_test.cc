#include "layout/pieces.h"

#include <gtest/gtest.h>

#include <random>

namespace kvring {
namespace {

void check_pieces(const Shard& shard, const std::vector<Piece>& pieces, std::int64_t tile) {
  std::int64_t row = 0;
  for (const Piece& piece : pieces) {
    ASSERT_EQ(piece.first_row, row);
    ASSERT_GT(piece.keys, 0);
    ASSERT_LE(piece.keys, tile);
    for (std::int64_t i = 1; i < piece.keys; ++i)
      ASSERT_GT(shard.position(row + i), shard.position(row + i - 1));
    for (std::int64_t p = -1; p < 80; ++p) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < piece.keys; ++i) count += shard.position(row + i) < p;
      ASSERT_EQ(rows_before(shard, piece, p), count) << "position " << p;
    }
    row += piece.keys;
  }
  ASSERT_EQ(row, shard.tokens());
}

TEST(Pieces, AlignedShardsAreCutIntoTheTilesOfTheGrid) {
  const std::vector<std::int64_t> cu = {0, 5, 5, 30, 71};
  for (int ranks : {1, 2, 3, 8}) {
    for (LayoutKind kind : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
      const Layout layout = make_layout({kind}, 71, cu, 8, ranks);
      const auto grid = tile_grid(71, cu, 8);
      std::size_t tiles = 0;
      for (const Shard& shard : layout.shards) {
        const auto pieces = make_pieces(shard, grid, 8, layout.tile_aligned);
        check_pieces(shard, pieces, 8);
        tiles += pieces.size();
        for (const Piece& p : pieces) {
          EXPECT_NE(std::find(grid.begin(), grid.end(), shard.position(p.first_row)), grid.end());
        }
      }
      EXPECT_EQ(tiles + 1, grid.size());
    }
  }
}

TEST(Pieces, ScatteredTokensShareAPieceWhileTheyRise) {
  std::mt19937_64 rng(5);
  std::vector<std::int64_t> order(71);
  for (int i = 0; i < 71; ++i) order[static_cast<std::size_t>(i)] = i;
  for (int trial = 0; trial < 30; ++trial) {
    if (trial > 0) std::shuffle(order.begin(), order.end(), rng);
    std::vector<std::vector<std::int64_t>> positions(3);
    for (std::int64_t p : order) positions[static_cast<std::size_t>(p % 3)].push_back(p);
    const Layout layout = custom_layout(positions, 71, {}, 8);
    EXPECT_FALSE(layout.tile_aligned);
    for (const Shard& shard : layout.shards) {
      const auto pieces = make_pieces(shard, tile_grid(71, {}, 8), 8, false);
      check_pieces(shard, pieces, 8);
      if (trial == 0) {
        EXPECT_EQ(std::ssize(pieces), (shard.tokens() + 7) / 8);
      }
    }
  }
}

}  // namespace
}  // namespace kvring
