#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "schedule/test_support.h"

namespace kvring {
namespace {

Problem square(std::int64_t tokens) {
  Problem p;
  p.q_len = p.kv_len = tokens;
  p.head_dim = p.value_dim = 1;
  p.tile = 1;
  return p;
}

std::int64_t hops_of(const test::AllSteps& all) {
  std::int64_t hops = 0;
  for (const auto& steps : all)
    for (const Step& step : steps) hops += std::ssize(step.sends);
  return hops;
}

test::AllSteps ring(const Problem& p, const Layouts& layouts) {
  return test::all_steps(ScheduleKind::kRing, p, layouts);
}

TEST(RingSteps, PHopsWherePMinusOneSuffice) {
  const Problem p = square(64);
  for (int ranks : {1, 2, 4, 7}) {
    const test::AllSteps all = ring(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, ranks));
    for (const auto& steps : all) {
      EXPECT_EQ(hops_of({steps}), ranks - 1);
      for (const Step& step : steps) EXPECT_FALSE(step.attends.empty());
    }
  }
}

TEST(RingSteps, CausalContiguousNeverWrapsAround) {
  Problem p = square(64);
  p.causal = true;
  const test::AllSteps all = ring(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, 4));
  EXPECT_EQ(hops_of(all), 3 + 2 + 1);
  for (int rank = 0; rank < 4; ++rank) {
    for (const Step& step : all[static_cast<std::size_t>(rank)])
      EXPECT_EQ(!step.attends.empty(), step.step <= rank) << rank << ' ' << step.step;
  }
  // Zigzag needs every block everywhere.
  EXPECT_EQ(hops_of(ring(p, make_layouts({}, p, 4))), 4 * 3);
}

TEST(RingSteps, WindowOfHalfAShardGoesOneHop) {
  Problem p = square(64);
  p.causal = true;
  p.window_left = 8;
  const test::AllSteps all = ring(p, make_layouts({LayoutKind::kContiguous, 0, Cut::kTiles}, p, 4));
  EXPECT_EQ(hops_of(all), 3);
}

TEST(RingSteps, ARankThatDoesNotNeedABlockPassesItOn) {
  Problem p = square(6);
  p.cu_seqlens_q = p.cu_seqlens_kv = {0, 2, 4, 6};
  Layouts layouts;
  layouts.q = custom_layout({{2, 3}, {4, 5}, {0, 1}}, 6, p.cu_seqlens_q, 1);
  layouts.kv = custom_layout({{0, 1}, {2, 3}, {4, 5}}, 6, p.cu_seqlens_kv, 1);
  const test::AllSteps all = ring(p, layouts);
  const Step middle = all[1][1];  // rank 1 holds block 0, which only rank 2 needs
  EXPECT_TRUE(middle.attends.empty());
  EXPECT_EQ(middle.sends, (std::vector<Transfer>{{{Cargo::kBlock, 0}, 2}}));
  EXPECT_EQ(all[2][2].attends, (std::vector<Attend>{{2, 0}}));
}

TEST(RingSteps, ManyRanksAndManyRanges) {
  Problem p = square(std::int64_t{1} << 16);
  p.causal = true;
  p.tile = 64;
  const std::vector<Step> zigzag = schedule_steps(ScheduleKind::kRing, p, make_layouts({}, p, 1024), 1023);
  EXPECT_EQ(hops_of({zigzag}), 1023);
  p.window_left = 100;
  const std::vector<Step> stripes = schedule_steps(
      ScheduleKind::kRing, p, make_layouts({LayoutKind::kStriped, 1, Cut::kTokens}, p, 512), 0);
  EXPECT_EQ(hops_of({stripes}), 100);
}

// A rank attends a block exactly when it needs it, in the step in which the ring brings it, and no block goes
// beyond its last user.
RC_GTEST_PROP(RingSteps, AttendWhatIsSeenAndSendNoFurther, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const test::Case c = test::random_case(rng);
  RC_LOG() << test::describe(c.problem) << "ranks=" << c.ranks;
  const test::AllSteps all = ring(c.problem, c.layouts);
  for (int owner = 0; owner < c.ranks; ++owner) {
    int last_user = 0, hops = 0;
    for (int j = 0; j < c.ranks; ++j) {
      const int user = (owner + j) % c.ranks;
      const bool needed = test::needs(c, user, owner);
      if (needed) last_user = j;
      const Step& step = all[static_cast<std::size_t>(user)][static_cast<std::size_t>(j)];
      RC_ASSERT(step.attends == (needed ? std::vector<Attend>{{user, owner}} : std::vector<Attend>{}));
      for (const Transfer& send : step.sends) {
        RC_ASSERT(send.parcel == (Parcel{Cargo::kBlock, owner}));
        RC_ASSERT(send.peer == (user + 1) % c.ranks);
        ++hops;
      }
    }
    RC_ASSERT(hops == last_user);
  }
}

}  // namespace
}  // namespace kvring
