#include "runtime/block.h"

#include <utility>

#include "schedule/work_cut.h"

namespace kvring {

BlockMap::BlockMap(const Problem& problem, const Shard& shard, std::vector<Piece> pieces)
    : shard_(&shard), pieces_(std::move(pieces)) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(problem.kv_dtype));
  products_ = products_of(problem.q_dtype, problem.kv_dtype);
  key_bytes_ = problem.head_dim * element;
  row_bytes_ = (problem.head_dim + problem.value_dim) * element;
  unit_bytes_ = unit_block_bytes(problem, shard);
}

PackedTile BlockMap::tile(const std::byte* block, std::int64_t unit_bytes, std::int64_t unit,
                          std::int64_t piece) const noexcept {
  const Piece& p = pieces_[static_cast<std::size_t>(piece)];
  const std::byte* k = block + unit * unit_bytes + p.first_row * row_bytes_;
  return {k, k + p.keys * key_bytes_, p.keys};
}

std::vector<BlockMap> make_block_maps(const Problem& problem, const Layout& layout) {
  const std::vector<std::int64_t> grid = tile_grid(problem.kv_len, problem.cu_seqlens_kv, problem.tile);
  std::vector<BlockMap> maps;
  for (const Shard& shard : layout.shards) {
    maps.emplace_back(problem, shard, make_pieces(shard, grid, problem.tile, layout.tile_aligned));
  }
  return maps;
}

void pack_piece(const BlockMap& map, const PackSource& source, const Lap& lap, std::int64_t unit,
                std::int64_t piece, std::byte* block) {
  const Piece& p = map.pieces()[static_cast<std::size_t>(piece)];
  const PackedTile tile = map.tile(block, map.bytes(1), unit, piece);
  const std::int64_t heads = source.k.shape[2];
  const std::int64_t b = (lap.kv_begin + unit) / heads;
  const std::int64_t h = (lap.kv_begin + unit) % heads;
  pack_keys(map.products(), {&source.k, b, h, p.first_row, p.keys}, block + (tile.k - block));
  pack_values(map.products(), {&source.v, b, h, p.first_row, p.keys}, block + (tile.v - block));
}

}  // namespace kvring
