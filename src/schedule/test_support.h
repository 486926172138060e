// Random layouts and masks, and the steps of all ranks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mask/mask.h"
#include "schedule/step.h"
#include "tests/support/random_problem.h"

namespace kvring::test {

using AllSteps = std::vector<std::vector<Step>>;

inline AllSteps all_steps(ScheduleKind kind, const Problem& p, const Layouts& layouts) {
  AllSteps all;
  for (int rank = 0; rank < std::ssize(layouts.q.shards); ++rank)
    all.push_back(schedule_steps(kind, p, layouts, rank));
  AllSteps together;
  for_each_rank_steps(kind, p, layouts, [&](int rank, const std::vector<Step>& steps) {
    EXPECT_EQ(rank, std::ssize(together));
    together.push_back(steps);
  });
  EXPECT_EQ(together, all);
  return all;
}

inline Layout random_layout(Rng& rng, std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
                            std::int64_t tile, int ranks) {
  const std::int64_t kind = rng.between(0, 3);
  const Cut cut = rng.chance(0.5) ? Cut::kTiles : Cut::kTokens;
  if (kind < 3) return make_layout({static_cast<LayoutKind>(kind), 0, cut}, tokens, cu_seqlens, tile, ranks);
  std::vector<std::vector<std::int64_t>> positions(static_cast<std::size_t>(ranks));
  for (std::int64_t p = 0; p < tokens; ++p)
    positions[static_cast<std::size_t>(rng.between(0, ranks - 1))].push_back(p);
  for (auto& list : positions) {
    if (rng.chance(0.3)) std::reverse(list.begin(), list.end());
  }
  return custom_layout(positions, tokens, cu_seqlens, tile);
}

struct Case {
  Problem problem;
  Layouts layouts;
  int ranks;
};

inline Case random_case(Rng& rng) {
  Case c{random_masked_problem(rng, 40), {}, static_cast<int>(rng.between(1, 9))};
  const Problem& p = c.problem;
  c.layouts = {random_layout(rng, p.q_len, p.cu_seqlens_q, p.tile, c.ranks),
               random_layout(rng, p.kv_len, p.cu_seqlens_kv, p.tile, c.ranks)};
  return c;
}

// Whether some query of `user` sees some key of `owner`, one by one.
inline bool needs(const Case& c, int user, int owner) {
  const Mask mask(c.problem);
  const Shard& queries = c.layouts.q.shards[static_cast<std::size_t>(user)];
  const Shard& keys = c.layouts.kv.shards[static_cast<std::size_t>(owner)];
  for (std::int64_t i = 0; i < queries.tokens(); ++i) {
    const Range visible = mask.visible(queries.position(i));
    for (std::int64_t j = 0; j < keys.tokens(); ++j) {
      const std::int64_t key = keys.position(j);
      if (visible.begin <= key && key < visible.end) return true;
    }
  }
  return false;
}

}  // namespace kvring::test
