#include "planner/tiles.h"

#include <algorithm>

#include "layout/pieces.h"
#include "mask/mask.h"
#include "problem/kernel_sizes.h"

namespace kvring {

TileCount::TileCount(const Problem& problem, const Layouts& layouts) {
  const Mask mask(problem);
  const std::int64_t group = problem.q_heads / problem.kv_heads;
  for (const Shard& queries : layouts.q.shards) {
    std::vector<Sight>& sights = sights_.emplace_back();
    const std::int64_t rows = queries.tokens() * group;
    for (std::int64_t first = 0; first < rows; first += kPanelRows) {
      const std::int64_t last = std::min(first + kPanelRows, rows) - 1;
      Sight sight{problem.kv_len, 0};
      for (std::int64_t token = first / group; token <= last / group; ++token) {
        const std::int64_t end = mask.visible(queries.position(token)).end;
        sight = {std::min(sight.all, end), std::max(sight.some, end)};
      }
      sights.push_back(sight);
    }
  }
  const std::vector<std::int64_t> grid = tile_grid(problem.kv_len, {}, problem.tile);
  for (const Shard& keys : layouts.kv.shards) {
    std::vector<std::int64_t>& begins = begins_.emplace_back();
    std::vector<std::int64_t>& ends = ends_.emplace_back();
    for (const Piece& tile : make_pieces(keys, grid, problem.tile, layouts.kv.tile_aligned)) {
      begins.push_back(keys.position(tile.first_row));
      ends.push_back(begins.back() + tile.keys);
    }
    std::ranges::sort(begins);
    std::ranges::sort(ends);
  }
}

Operation::Tiles TileCount::of(int query_rank, int key_rank) const {
  const std::vector<std::int64_t>& begins = begins_[static_cast<std::size_t>(key_rank)];
  const std::vector<std::int64_t>& ends = ends_[static_cast<std::size_t>(key_rank)];
  Operation::Tiles tiles;
  for (const Sight& sight : sights_[static_cast<std::size_t>(query_rank)]) {
    const std::int64_t seen = std::ranges::lower_bound(begins, sight.some) - begins.begin();
    const std::int64_t full = std::ranges::upper_bound(ends, sight.all) - ends.begin();
    tiles.full += full;
    tiles.partial += seen - full;
    tiles.skipped += std::ssize(begins) - seen;
  }
  return tiles;
}

std::vector<std::int64_t> TileCount::panels() const {
  std::vector<std::int64_t> panels;
  for (const std::vector<Sight>& sights : sights_) panels.push_back(std::ssize(sights));
  return panels;
}

std::vector<std::int64_t> TileCount::tiles() const {
  std::vector<std::int64_t> tiles;
  for (const std::vector<std::int64_t>& begins : begins_) tiles.push_back(std::ssize(begins));
  return tiles;
}

}  // namespace kvring
