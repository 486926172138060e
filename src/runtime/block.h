// The block of a shard: where its heads and pieces lie in the packed message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/pack.h"
#include "kvring/problem.h"
#include "kvring/ring.h"
#include "layout/pieces.h"
#include "schedule/step.h"

namespace kvring {

// One owner's block: KV units of the lap outside, pieces of the shard inside, each K then V, no padding.
class BlockMap {
 public:
  BlockMap(const Problem& problem, const Shard& shard, std::vector<Piece> pieces);

  Products products() const noexcept { return products_; }
  const Shard& shard() const noexcept { return *shard_; }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  // Bytes of a block with that many KV units.
  std::int64_t bytes(std::int64_t units) const noexcept { return units * unit_bytes_; }
  // Of a block whose units lie `unit_bytes` apart.
  PackedTile tile(const std::byte* block, std::int64_t unit_bytes, std::int64_t unit,
                  std::int64_t piece) const noexcept;
  std::int64_t row_bytes() const noexcept { return row_bytes_; }  // of a key and its value

 private:
  const Shard* shard_;
  std::vector<Piece> pieces_;
  Products products_;
  std::int64_t unit_bytes_, key_bytes_, row_bytes_;  // of one unit; of a key row; of a key and its value
};

// The blocks of all ranks, by owner. The layout must outlive them.
std::vector<BlockMap> make_block_maps(const Problem& problem, const Layout& layout);

// Packs one piece of one KV unit of this rank's k and v into `block`.
struct PackSource {
  const ConstTensorView& k;
  const ConstTensorView& v;
};
void pack_piece(const BlockMap& map, const PackSource& source, const Lap& lap, std::int64_t unit,
                std::int64_t piece, std::byte* block);

}  // namespace kvring
