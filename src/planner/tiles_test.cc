#include "planner/tiles.h"

#include <gmock/gmock.h>

#include "mask/mask.h"
#include "planner/test_support.h"
#include "problem/kernel_sizes.h"

namespace kvring {
namespace {

// Row by row and key by key.
Operation::Tiles counted(const Problem& p, const Shard& queries, const Shard& keys) {
  const Mask mask(p);
  const std::int64_t group = p.q_heads / p.kv_heads, rows = queries.tokens() * group;
  Operation::Tiles tiles;
  for (std::int64_t first = 0; first < rows; first += kPanelRows) {
    for (std::int64_t tile = 0; tile * p.tile < p.kv_len; ++tile) {
      std::int64_t held = 0, seen = 0;
      for (std::int64_t row = first; row < std::min(first + kPanelRows, rows); ++row) {
        const Range visible = mask.visible(queries.position(row / group));
        for (std::int64_t i = 0; i < keys.tokens(); ++i) {
          const std::int64_t key = keys.position(i);
          if (key / p.tile != tile) continue;
          ++held;
          if (visible.begin <= key && key < visible.end) ++seen;
        }
      }
      if (held == 0) continue;
      if (seen == 0) ++tiles.skipped;
      if (seen == held) ++tiles.full;
      if (0 < seen && seen < held) ++tiles.partial;
    }
  }
  return tiles;
}

TEST(TileCount, IsThatOfRowsAndKeys) {
  for (const LayoutKind kind : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
    for (const auto& [queries, keys] : {std::pair(200, 200), std::pair(70, 200), std::pair(200, 70)}) {
      for (const bool causal : {false, true}) {
        Problem p = attention(queries, keys, 6, 2).problem;
        p.tile = 16;
        p.causal = causal;
        LayoutSpec spec;
        spec.kind = kind;
        const Layouts layouts = make_layouts(spec, p, 3);
        const TileCount count(p, layouts);
        for (int q = 0; q < 3; ++q) {
          const auto& q_shard = layouts.q.shards[static_cast<std::size_t>(q)];
          EXPECT_EQ(count.panels()[static_cast<std::size_t>(q)], (q_shard.tokens() * 3 + 47) / 48);
          for (int k = 0; k < 3; ++k)
            EXPECT_EQ(count.of(q, k), counted(p, q_shard, layouts.kv.shards[static_cast<std::size_t>(k)]))
                << layout_name(kind) << " " << queries << " " << keys << " " << causal << " " << q << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvring
