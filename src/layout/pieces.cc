#include "layout/pieces.h"

#include <algorithm>

namespace kvring {
namespace {

std::vector<Piece> tile_pieces(const Shard& shard, const std::vector<std::int64_t>& grid) {
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < std::ssize(shard.ranges()); ++i) {
    const Range range = shard.ranges()[static_cast<std::size_t>(i)];
    std::int64_t row = shard.offsets()[static_cast<std::size_t>(i)];
    auto border = std::upper_bound(grid.begin(), grid.end(), range.begin);
    for (std::int64_t p = range.begin; p < range.end; ++border) {
      const std::int64_t end = std::min(*border, range.end);
      pieces.push_back({row, end - p, i, i + 1});
      row += end - p;
      p = end;
    }
  }
  return pieces;
}

std::vector<Piece> run_pieces(const Shard& shard, std::int64_t tile) {
  std::vector<Piece> pieces;
  std::int64_t previous_end = -1;
  for (std::int64_t i = 0; i < std::ssize(shard.ranges()); ++i) {
    const Range range = shard.ranges()[static_cast<std::size_t>(i)];
    std::int64_t row = shard.offsets()[static_cast<std::size_t>(i)];
    std::int64_t left = range.size();
    bool joins = range.begin >= previous_end;  // positions still rise
    while (left > 0) {
      if (pieces.empty() || !joins || pieces.back().keys == tile) pieces.push_back({row, 0, i, i + 1});
      Piece& piece = pieces.back();
      const std::int64_t taken = std::min(left, tile - piece.keys);
      piece.keys += taken;
      piece.end_range = i + 1;
      row += taken;
      left -= taken;
      joins = true;
    }
    previous_end = range.end;
  }
  return pieces;
}

}  // namespace

std::vector<Piece> make_pieces(const Shard& shard, const std::vector<std::int64_t>& grid, std::int64_t tile,
                               bool tile_aligned) {
  return tile_aligned ? tile_pieces(shard, grid) : run_pieces(shard, tile);
}

std::int64_t rows_before(const Shard& shard, const Piece& piece, std::int64_t p) noexcept {
  const auto first = shard.ranges().begin() + piece.first_range;
  const auto end = shard.ranges().begin() + piece.end_range;
  // The last range that starts before p.
  const auto after = std::partition_point(first, end, [p](const Range& r) { return r.begin < p; });
  if (after == first) return 0;
  const Range& range = *(after - 1);
  const std::int64_t row = shard.offsets()[static_cast<std::size_t>(after - 1 - shard.ranges().begin())] +
                           std::min(p - range.begin, range.size());
  return std::clamp<std::int64_t>(row - piece.first_row, 0, piece.keys);
}

}  // namespace kvring
