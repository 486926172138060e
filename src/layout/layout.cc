#include "kvring/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"
#include "kvring/ring.h"
#include "layout/checks.h"
#include "problem/checks.h"

namespace kvring {
namespace {

// More ranks than any machine has; bounds the intermediate products below.
constexpr int kMaxRanks = 1 << 20;

void check_sequence(std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens, std::int64_t tile) {
  if (tokens < 0) throw InvalidArgument(fmt::format("tokens is {}; it must be 0 or more", tokens));
  check_tile(tile);
  check_cu_seqlens("cu_seqlens", cu_seqlens, "the number of tokens", tokens);
}

void check_spec(const LayoutSpec& spec, std::int64_t tile, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks)
    throw InvalidArgument(fmt::format("ranks is {}; it must be 1 to {}", ranks, kMaxRanks));
  if (spec.kind == LayoutKind::kCustom)
    throw InvalidArgument("a custom layout needs the positions of every rank; use custom_layout()");
  if (spec.stripe < 0)
    throw InvalidArgument(
        fmt::format("stripe is {}; it must be a width in tokens, or 0 for one tile", spec.stripe));
  if (spec.kind != LayoutKind::kStriped && spec.stripe != 0)
    throw InvalidArgument(fmt::format("stripe is {} but the layout is {}; use layout striped, or stripe 0",
                                      spec.stripe, layout_name(spec.kind)));
  const std::int64_t rest = spec.stripe % tile;
  if (spec.cut == Cut::kTiles && rest != 0) {
    const std::int64_t below = std::max(spec.stripe - rest, tile);
    throw InvalidArgument(
        fmt::format("stripe is {}, which is not a multiple of the tile of {}; use {} or {}, or cut at tokens",
                    spec.stripe, tile, below, below + tile));
  }
}

// floor(part * total / parts) without overflow; 0 <= part <= parts <= 2^21.
std::int64_t fraction(std::int64_t total, std::int64_t part, std::int64_t parts) {
  return total / parts * part + total % parts * part / parts;
}

// The sequence as numbered units that are never cut: tiles or tokens.
class Units {
 public:
  // Of one document; the last one may be shorter.
  Units(std::int64_t tokens, std::int64_t width)
      : count_(tokens / width + (tokens % width != 0)), tokens_(tokens), width_(width) {}
  explicit Units(std::vector<std::int64_t> grid) : count_(std::ssize(grid) - 1), grid_(std::move(grid)) {}

  std::int64_t count() const { return count_; }
  // The tokens of units begin <= u < end.
  Range tokens(std::int64_t begin, std::int64_t end) const { return {first_token(begin), first_token(end)}; }

 private:
  std::int64_t first_token(std::int64_t unit) const {
    if (!grid_.empty()) return grid_[static_cast<std::size_t>(unit)];
    return unit == count_ ? tokens_ : unit * width_;
  }

  std::int64_t count_;
  std::int64_t tokens_ = 0, width_ = 1;
  std::vector<std::int64_t> grid_;  // of several documents, and the end
};

// The ranges of one rank, without the empty ones.
class RangeList {
 public:
  explicit RangeList(const Units& units) : units_(units) {}
  void add(std::int64_t begin, std::int64_t end) {
    if (begin < end) ranges_.push_back(units_.tokens(begin, end));
  }
  Shard take() { return Shard(ranges_); }

 private:
  const Units& units_;
  std::vector<Range> ranges_;
};

Shard contiguous_shard(const Units& units, int rank, int ranks) {
  RangeList list(units);
  list.add(fraction(units.count(), rank, ranks), fraction(units.count(), rank + 1, ranks));
  return list.take();
}

Shard zigzag_shard(const Units& units, int rank, int ranks) {
  RangeList list(units);
  for (int chunk : {rank, 2 * ranks - 1 - rank})
    list.add(fraction(units.count(), chunk, 2 * ranks), fraction(units.count(), chunk + 1, 2 * ranks));
  return list.take();
}

// `width` is in units: with documents a stripe holds so many tiles, the short last ones included.
Shard striped_shard(const Units& units, std::int64_t width, int rank, int ranks) {
  const std::int64_t stripes = units.count() / width + (units.count() % width != 0);
  RangeList list(units);
  for (std::int64_t stripe = rank; stripe < stripes; stripe += ranks)
    list.add(stripe * width, std::min(units.count(), stripe * width + std::min(width, units.count())));
  return list.take();
}

// Whether every range starts where a tile does. Shards hold every position once, so where a range ends
// another starts, or the sequence ends.
bool is_tile_aligned(const Layout& layout, const std::vector<std::int64_t>& cu_seqlens, std::int64_t tile) {
  const auto starts_tile = [&](std::int64_t p) {
    if (cu_seqlens.empty()) return p % tile == 0;
    const std::int64_t document = *(std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), p) - 1);
    return (p - document) % tile == 0;
  };
  for (const Shard& shard : layout.shards) {
    for (const Range& range : shard.ranges()) {
      if (!starts_tile(range.begin)) return false;
    }
  }
  return true;
}

void check_positions(const std::vector<std::vector<std::int64_t>>& positions, std::int64_t tokens) {
  if (positions.empty()) throw InvalidArgument("a custom layout has 0 ranks; it needs 1 or more");
  std::int64_t listed = 0;
  for (const std::vector<std::int64_t>& list : positions) listed += std::ssize(list);
  // Of so many listed positions the first that is missing is at most `listed`; beyond it nothing is first.
  const std::int64_t looked_at = std::min(tokens, listed + 1);
  std::vector<bool> seen(static_cast<std::size_t>(looked_at));
  std::int64_t repeated = looked_at;
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    for (std::int64_t p : positions[rank]) {
      if (p < 0 || p >= tokens)
        throw InvalidArgument(
            fmt::format("rank {} lists position {}; there are {} tokens, numbered from 0", rank, p, tokens));
      if (p >= looked_at) continue;
      if (seen[static_cast<std::size_t>(p)]) repeated = std::min(repeated, p);
      seen[static_cast<std::size_t>(p)] = true;
    }
  }
  const std::int64_t missing = std::find(seen.begin(), seen.end(), false) - seen.begin();
  if (std::min(repeated, missing) < looked_at)
    throw InvalidArgument(fmt::format("position {} appears {}; every position must appear exactly once",
                                      std::min(repeated, missing),
                                      repeated < missing ? "more than once" : "on no rank"));
}

}  // namespace

void check_layout(std::string_view name, const Layout& layout, const std::vector<std::int64_t>& cu_seqlens,
                  std::int64_t tile) {
  std::vector<Range> ranges;
  for (const Shard& shard : layout.shards)
    ranges.insert(ranges.end(), shard.ranges().begin(), shard.ranges().end());
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  ranges.push_back({layout.tokens, layout.tokens});
  std::int64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered)
      throw InvalidArgument(fmt::format(
          "position {} of the {} layout {}; every position must be on exactly one rank, as make_layout() and "
          "custom_layout() see to",
          std::min(covered, range.begin), name,
          range.begin < covered ? "is on two ranks or outside the sequence" : "is on no rank"));
    covered = range.end;
  }
  if (layout.tile_aligned && !is_tile_aligned(layout, cu_seqlens, tile))
    throw InvalidArgument(fmt::format(
        "the {} layout says that it is cut at tiles of {}, and it is not; set tile_aligned to false", name,
        tile));
}

const char* layout_name(LayoutKind kind) noexcept {
  switch (kind) {
    case LayoutKind::kContiguous:
      return "contiguous";
    case LayoutKind::kZigzag:
      return "zigzag";
    case LayoutKind::kStriped:
      return "striped";
    case LayoutKind::kCustom:
      return "custom";
  }
  return "?";
}

std::vector<std::int64_t> tile_grid(std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
                                    std::int64_t tile) {
  check_sequence(tokens, cu_seqlens, tile);
  std::vector<std::int64_t> grid;
  const auto add_document = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; p += tile) grid.push_back(p);
  };
  if (cu_seqlens.empty()) add_document(0, tokens);
  for (std::size_t i = 1; i < cu_seqlens.size(); ++i) add_document(cu_seqlens[i - 1], cu_seqlens[i]);
  grid.push_back(tokens);
  return grid;
}

Layout make_layout(const LayoutSpec& spec, std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
                   std::int64_t tile, int ranks) {
  check_sequence(tokens, cu_seqlens, tile);
  check_spec(spec, tile, ranks);
  const bool by_tiles = spec.cut == Cut::kTiles;
  const Units units = by_tiles && !cu_seqlens.empty() ? Units(tile_grid(tokens, cu_seqlens, tile))
                                                      : Units(tokens, by_tiles ? tile : 1);
  const std::int64_t stripe = spec.stripe == 0 ? tile : spec.stripe;
  const std::int64_t width = by_tiles ? stripe / tile : stripe;

  Layout layout{spec, tokens, {}, true};
  layout.shards.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    switch (spec.kind) {
      case LayoutKind::kZigzag:
        layout.shards.push_back(zigzag_shard(units, rank, ranks));
        break;
      case LayoutKind::kStriped:
        layout.shards.push_back(striped_shard(units, width, rank, ranks));
        break;
      default:
        layout.shards.push_back(contiguous_shard(units, rank, ranks));
    }
  }
  layout.tile_aligned = is_tile_aligned(layout, cu_seqlens, tile);
  return layout;
}

Layout custom_layout(const std::vector<std::vector<std::int64_t>>& positions, std::int64_t tokens,
                     const std::vector<std::int64_t>& cu_seqlens, std::int64_t tile) {
  check_sequence(tokens, cu_seqlens, tile);
  check_positions(positions, tokens);
  Layout layout{{LayoutKind::kCustom, 0, Cut::kTokens}, tokens, {}, true};
  for (const std::vector<std::int64_t>& list : positions) {
    std::vector<Range> ranges;
    ranges.reserve(list.size());
    for (std::int64_t p : list) ranges.push_back({p, p + 1});
    layout.shards.emplace_back(ranges);
  }
  layout.tile_aligned = is_tile_aligned(layout, cu_seqlens, tile);
  return layout;
}

Layouts make_layouts(const LayoutSpec& spec, const Problem& problem, int ranks) {
  return {make_layout(spec, problem.q_len, problem.cu_seqlens_q, problem.tile, ranks),
          make_layout(spec, problem.kv_len, problem.cu_seqlens_kv, problem.tile, ranks)};
}

}  // namespace kvring
