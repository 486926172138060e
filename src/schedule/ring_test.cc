#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "kvring/error.h"
#include "mask/mask.h"
#include "schedule/step.h"
#include "tests/support/random_problem.h"

namespace kvring {
namespace {

using AllSteps = std::vector<std::vector<Step>>;

AllSteps all_steps(const Problem& p, const Layouts& layouts) {
  AllSteps all;
  for (int rank = 0; rank < std::ssize(layouts.q.shards); ++rank)
    all.push_back(schedule_steps(ScheduleKind::kRing, p, layouts, rank));
  AllSteps together;
  for_each_rank_steps(ScheduleKind::kRing, p, layouts, [&](int rank, const std::vector<Step>& steps) {
    EXPECT_EQ(rank, std::ssize(together));
    together.push_back(steps);
  });
  EXPECT_EQ(together, all);
  return all;
}

Layout random_layout(test::Rng& rng, std::int64_t tokens, const std::vector<std::int64_t>& cu_seqlens,
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

Case random_case(test::Rng& rng) {
  Case c{test::random_masked_problem(rng, 40), {}, static_cast<int>(rng.between(1, 9))};
  const Problem& p = c.problem;
  c.layouts = {random_layout(rng, p.q_len, p.cu_seqlens_q, p.tile, c.ranks),
               random_layout(rng, p.kv_len, p.cu_seqlens_kv, p.tile, c.ranks)};
  return c;
}

// Whether some query of `user` sees some key of `owner`, one by one.
bool needs(const Case& c, int user, int owner) {
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

// A rank attends a block exactly when it needs it, once, and no block goes beyond its last user.
RC_GTEST_PROP(RingSteps, AttendWhatIsSeenAndSendNoFurther, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Case c = random_case(rng);
  RC_LOG() << test::describe(c.problem) << "ranks=" << c.ranks;
  const AllSteps all = all_steps(c.problem, c.layouts);
  for (int owner = 0; owner < c.ranks; ++owner) {
    int last_user = 0, hops = 0;
    for (int j = 0; j < c.ranks; ++j) {
      const int user = (owner + j) % c.ranks;
      const bool needed = needs(c, user, owner);
      if (needed) last_user = j;
      int attended = 0;
      for (const Step& step : all[static_cast<std::size_t>(user)]) {
        if (step.block != owner) continue;
        RC_ASSERT(step.step == j);
        attended += step.attend;
        hops += step.send_to >= 0;
      }
      RC_ASSERT(attended == (needed ? 1 : 0));
    }
    RC_ASSERT(hops == last_user);
  }
}

// Every step has what it uses: a block is the rank's own or was received in the step before.
RC_GTEST_PROP(RingSteps, StepsAreWellFormed, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Case c = random_case(rng);
  const AllSteps all = all_steps(c.problem, c.layouts);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const auto& steps = all[static_cast<std::size_t>(rank)];
    RC_ASSERT(std::ssize(steps) == c.ranks);
    std::int32_t held = rank;
    for (std::size_t t = 0; t < steps.size(); ++t) {
      const Step& s = steps[t];
      RC_ASSERT(s.step == static_cast<std::int32_t>(t));
      RC_ASSERT(s.block == held);
      RC_ASSERT(held >= 0 || (!s.attend && s.send_to == -1));
      RC_ASSERT(s.send_to == -1 || s.send_to == (rank + 1) % c.ranks);
      RC_ASSERT((s.receive_from == -1) == (s.receive_block == -1));
      RC_ASSERT(s.receive_from == -1 || s.receive_from == (rank - 1 + c.ranks) % c.ranks);
      held = s.receive_block;
    }
    RC_ASSERT(held == -1);
  }
}

// Plays all ranks on links without buffers: a transfer completes only when both sides have posted it, and a
// rank leaves a step only when both of its transfers are complete. Counts what got through in order.
RC_GTEST_PROP(RingSteps, SendThenReceiveDeadlocksOnATransportWithoutBuffering, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Case c = random_case(rng);
  const AllSteps all = all_steps(c.problem, c.layouts);
  const auto ranks = static_cast<std::size_t>(c.ranks);
  std::vector<std::size_t> at(ranks, 0);
  std::vector<std::vector<std::int32_t>> sent(ranks), received(ranks);  // on the link to / from the neighbour
  const auto post = [&](std::size_t rank) {
    if (at[rank] == ranks) return;
    const Step& s = all[rank][at[rank]];
    if (s.send_to >= 0) sent[rank].push_back(s.block);
    if (s.receive_from >= 0) received[rank].push_back(s.receive_block);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) post(rank);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      if (at[rank] == ranks || received[next].size() < sent[rank].size() ||
          sent[before].size() < received[rank].size())
        continue;
      ++at[rank];
      post(rank);
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    RC_ASSERT(at[rank] == ranks);
    RC_ASSERT(sent[rank] == received[(rank + 1) % ranks]);
  }
}

Problem square(std::int64_t tokens) {
  Problem p;
  p.q_len = p.kv_len = tokens;
  p.head_dim = p.value_dim = 1;
  p.tile = 1;
  return p;
}

int hops_of(const AllSteps& all) {
  int hops = 0;
  for (const auto& steps : all)
    for (const Step& step : steps) hops += step.send_to >= 0;
  return hops;
}

TEST(RingSteps, PHopsWherePMinusOneSuffice) {
  const Problem p = square(64);
  for (int ranks : {1, 2, 4, 7}) {
    const AllSteps all = all_steps(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, ranks));
    for (const auto& steps : all) {
      EXPECT_EQ(hops_of({steps}), ranks - 1);
      for (const Step& step : steps) EXPECT_TRUE(step.attend);
    }
  }
}

TEST(RingSteps, CausalContiguousNeverWrapsAround) {
  Problem p = square(64);
  p.causal = true;
  const AllSteps all = all_steps(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, 4));
  EXPECT_EQ(hops_of(all), 3 + 2 + 1);
  for (int rank = 0; rank < 4; ++rank) {
    for (const Step& step : all[static_cast<std::size_t>(rank)])
      EXPECT_EQ(step.attend, step.step <= rank) << rank << ' ' << step.step;
  }
  // Zigzag needs every block everywhere.
  EXPECT_EQ(hops_of(all_steps(p, make_layouts({}, p, 4))), 4 * 3);
}

TEST(RingSteps, WindowOfHalfAShardGoesOneHop) {
  Problem p = square(64);
  p.causal = true;
  p.window_left = 8;
  const AllSteps all = all_steps(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, 4));
  EXPECT_EQ(hops_of(all), 3);
}

TEST(RingSteps, ARankThatDoesNotNeedABlockPassesItOn) {
  Problem p = square(6);
  p.cu_seqlens_q = p.cu_seqlens_kv = {0, 2, 4, 6};
  Layouts layouts;
  layouts.q = custom_layout({{2, 3}, {4, 5}, {0, 1}}, 6, p.cu_seqlens_q, 1);
  layouts.kv = custom_layout({{0, 1}, {2, 3}, {4, 5}}, 6, p.cu_seqlens_kv, 1);
  const AllSteps all = all_steps(p, layouts);
  const Step middle = all[1][1];  // rank 1 holds block 0, which only rank 2 needs
  EXPECT_EQ(middle.block, 0);
  EXPECT_FALSE(middle.attend);
  EXPECT_EQ(middle.send_to, 2);
  EXPECT_TRUE(all[2][2].attend);
}

TEST(RingSteps, ManyRanksAndManyRanges) {
  Problem p = square(std::int64_t{1} << 16);
  p.causal = true;
  p.tile = 64;
  const std::vector<Step> zigzag = ring_steps(p, make_layouts({}, p, 1024), 1023);
  EXPECT_EQ(hops_of({zigzag}), 1023);
  p.window_left = 100;
  const std::vector<Step> stripes =
      ring_steps(p, make_layouts({LayoutKind::kStriped, 1, Cut::kTokens}, p, 512), 0);
  EXPECT_EQ(hops_of({stripes}), 100);
}

TEST(RingSteps, RefusesLayoutsThatDoNotFit) {
  const Problem p = square(8);
  const Layouts layouts = make_layouts({}, p, 2);
  EXPECT_THROW(ring_steps(p, layouts, 2), InvalidArgument);
  EXPECT_THROW(ring_steps(p, layouts, -1), InvalidArgument);
  EXPECT_THROW(ring_steps(square(9), layouts, 0), InvalidArgument);
  EXPECT_THROW(ring_steps(p, {layouts.q, make_layouts({}, p, 3).kv}, 0), InvalidArgument);
  EXPECT_THROW(ring_steps(p, {}, 0), InvalidArgument);
}

}  // namespace
}  // namespace kvring
