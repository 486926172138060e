// Pieces: how a shard's keys are cut into units of arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/layout.h"

namespace kvring {

// Consecutive local rows of a shard whose positions rise; one tile where the layout is tile-aligned.
struct Piece {
  std::int64_t first_row = 0;
  std::int64_t keys = 0;
  // The shard's ranges that hold its rows: first_range <= i < end_range.
  std::int64_t first_range = 0;
  std::int64_t end_range = 0;
};

// All rows of the shard in order. Tile-aligned: the tiles of `grid`. Otherwise runs of at most `tile` rows:
// exact, but the bits depend on where shards were cut.
std::vector<Piece> make_pieces(const Shard& shard, const std::vector<std::int64_t>& grid, std::int64_t tile,
                               bool tile_aligned);

// How many rows of the piece lie before global position p; 0 .. keys.
std::int64_t rows_before(const Shard& shard, const Piece& piece, std::int64_t p) noexcept;

}  // namespace kvring
