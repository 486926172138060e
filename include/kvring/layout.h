// Layout: who owns which token. Pure functions of the sequence and the ring size; no mask, no schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvring/tensor.h"

namespace kvring {

// Global positions begin <= p < end.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The tokens one rank owns, as an ordered list of non-empty ranges of global positions. Local row i of
// the rank's tensors is the i-th position in this order.
class Shard {
 public:
  Shard() = default;
  // Ranges must be non-empty; neighbours that touch (end == next begin) are joined.
  explicit Shard(const std::vector<Range>& ranges);

  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  // Local row at which each range starts, and the total: ranges().size() + 1 entries.
  const std::vector<std::int64_t>& offsets() const noexcept { return offsets_; }
  std::int64_t tokens() const noexcept { return offsets_.back(); }
  // Global position of local row 0 <= local < tokens(). O(log ranges).
  std::int64_t position(std::int64_t local) const noexcept;

  friend bool operator==(const Shard& a, const Shard& b) { return a.ranges_ == b.ranges_; }

 private:
  std::vector<Range> ranges_;
  std::vector<std::int64_t> offsets_ = {0};
};

enum class LayoutKind : std::uint8_t { kContiguous, kZigzag, kStriped, kCustom };
enum class Cut : std::uint8_t {
  kTiles,   // shards are whole tiles: inside the bit promise, shard sizes may differ by a tile or two
  kTokens,  // equal shards cut anywhere: exact, outside the bit promise
};

struct LayoutSpec {
  LayoutKind kind = LayoutKind::kZigzag;
  std::int64_t stripe = 0;  // tokens per stripe (kStriped); 0 is one tile
  Cut cut = Cut::kTiles;
};

const char* layout_name(LayoutKind kind) noexcept;  // "contiguous", "zigzag", "striped", "custom"

// Who owns which token of one sequence.
struct Layout {
  LayoutSpec spec;  // the rule it was made by; kCustom for a caller's own shards
  std::int64_t tokens = 0;
  std::vector<Shard> shards;  // one per rank; a rank may own nothing
  bool tile_aligned = true;   // every shard is whole tiles, so bits do not depend on the layout
};

// The tile grid: positions where tiles start, and the end. It restarts at each document of cu_seqlens
// (empty: one document of `tokens`), so a document's tiles do not depend on its neighbours. Each
// consecutive pair is one tile; tiles are never empty and at most `tile` long.
std::vector<std::int64_t> tile_grid(std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
                                    std::int64_t tile);

// Cuts `tokens` over `ranks`. Contiguous: rank r owns the r-th of P runs. Zigzag: 2P chunks, rank r
// owns chunks r and 2P-1-r, which flattens the causal triangle. Striped: stripe s belongs to rank
// s mod P ("Striped Attention", arXiv 2311.09431). With Cut::kTiles all cuts fall on tile_grid and
// runs or chunks differ by at most one tile; a stripe that is not a multiple of the tile then throws
// InvalidArgument naming the two widths that would work. With Cut::kTokens runs or chunks differ by
// at most one token.
Layout make_layout(const LayoutSpec& spec, std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
                   std::int64_t tile, int ranks);

// A caller's own shards: positions[r] lists the global positions of rank r's local rows in order. Every
// position 0..tokens-1 must appear exactly once, or InvalidArgument names the first that does not.
// tile_aligned is worked out from cu_seqlens and tile.
Layout custom_layout(const std::vector<std::vector<std::int64_t>>& positions, std::int64_t tokens,
                     const std::vector<std::int64_t>& cu_seqlens, std::int64_t tile);

// Copies a rank's rows out of a whole (batch, seqlen, heads, dim) tensor, and back. Shapes must match
// in all but seqlen, dtypes must be equal; `local` holds shard.tokens() rows. No aliasing.
void shard(const ConstTensorView& whole, const Shard& shard, const TensorView& local);
void unshard(const ConstTensorView& local, const Shard& shard, const TensorView& whole);

}  // namespace kvring
