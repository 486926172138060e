// What the reports say: hops, bytes, tiles, progress.
#include "tests/ring/ring_support.h"

namespace kvring::test {
namespace {

RankReport total(const Result& r) {
  RankReport all;
  for (const RankReport& rank : r.report.per_rank) {
    all.hops += rank.hops;
    all.bytes_sent += rank.bytes_sent;
    all.tiles_full += rank.tiles_full;
    all.tiles_partial += rank.tiles_partial;
    all.tiles_skipped += rank.tiles_skipped;
  }
  return all;
}

TEST(RingTraffic, FullMaskSendsEveryBlockPMinusOneTimesPerLap) {
  const Problem p = plain_problem(4 * 32, 8);
  Rng rng(251);
  const Inputs in = random_inputs(rng, p);
  const Result r = run_ring(p, make_layouts({}, p, 4), one_thread(1), in);
  const std::int64_t laps = 2, block = 32 * (8 + 8) * 4;
  for (const RankReport& rank : r.report.per_rank) {
    EXPECT_EQ(rank.hops, laps * 3);
    EXPECT_EQ(rank.bytes_sent, laps * 3 * block);
  }
}

// Under a causal mask the first rank's block goes to all, the last one's to nobody.
TEST(RingTraffic, CausalContiguousBlocksTravelOnlyToTheRanksThatSeeThem) {
  Problem p = plain_problem(4 * 32, 8);
  p.causal = true;
  Rng rng(252);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({LayoutKind::kContiguous}, p, 4);
  const Result r = run_ring(p, layouts, one_thread(p.kv_heads), in);
  EXPECT_EQ(total(r).hops, 3 + 2 + 1);
  for (std::int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(r.report.per_rank[static_cast<std::size_t>(rank)].hops, rank < 3 ? rank + 1 : 0);
  EXPECT_TRUE(same_bits(r, one_rank(p, in)));
}

TEST(RingTraffic, TilesAddUpToAllPairs) {
  Rng rng(253);
  for (MaskKind mask : kMasks) {
    const Problem p = matrix_problem(rng, mask, DType::kF32);
    const Inputs in = random_inputs(rng, p);
    for (int ranks : {1, 3}) {
      const Layouts layouts = make_layouts({}, p, ranks);
      const Result r = run_ring(p, layouts, one_thread(), in);
      const auto tiles = std::ssize(tile_grid(p.kv_len, p.cu_seqlens_kv, p.tile)) - 1;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        const RankReport& report = r.report.per_rank[rank];
        const std::int64_t panels = (layouts.q.shards[rank].tokens() * (p.q_heads / p.kv_heads) + 47) / 48;
        EXPECT_EQ(report.tiles_full + report.tiles_partial + report.tiles_skipped,
                  p.batch * p.kv_heads * panels * tiles);
      }
      if (mask == MaskKind::kFull) {
        EXPECT_EQ(total(r).tiles_partial + total(r).tiles_skipped, 0);
      }
    }
  }
}

// The ratio of work between the busiest and the idlest rank.
double imbalance(const Problem& p, LayoutKind layout, const Inputs& in) {
  const Result r = run_ring(p, make_layouts({layout}, p, 4), one_thread(), in);
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (const RankReport& rank : r.report.per_rank) {
    least = std::min(least, rank.tiles_full + rank.tiles_partial);
    most = std::max(most, rank.tiles_full + rank.tiles_partial);
  }
  return static_cast<double>(most) / static_cast<double>(least);
}

TEST(RingTraffic, ZigzagBalancesTheCausalTriangle) {
  Problem p = plain_problem(8192, 64);
  p.q_heads = p.kv_heads = 1;
  p.head_dim = p.value_dim = 2;
  p.causal = true;
  Rng rng(254);
  const Inputs in = random_inputs(rng, p);
  EXPECT_LT(imbalance(p, LayoutKind::kZigzag, in), 1.03);
  EXPECT_GT(imbalance(p, LayoutKind::kContiguous, in), 6.0);  // 7/16 of the triangle against 1/16
}

TEST(RingTraffic, ProgressRisesToOne) {
  Problem p = plain_problem(900, 32);
  p.causal = true;
  Rng rng(255);
  const Inputs in = random_inputs(rng, p);
  for (int threads : {1, 3}) {
    std::vector<double> seen;
    AttendOptions options;
    options.ranks = 3;
    options.ring.threads = threads;
    options.ring.heads_per_lap = 1;
    options.progress = [&](double done) { seen.push_back(done); };
    run_inproc(p, options, in);
    ASSERT_FALSE(seen.empty());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_GE(seen.front(), 0);
    EXPECT_EQ(seen.back(), 1);
    if (threads > 1) continue;  // who gets which piece of work is chance, and only the caller reports
    ASSERT_GT(seen.size(), 3u);
    EXPECT_LT(seen[seen.size() / 2], 1);
  }
}

TEST(RingTraffic, TimesAreMeasured) {
  const Problem p = plain_problem(512, 32);
  Rng rng(256);
  const Inputs in = random_inputs(rng, p);
  AttendOptions options;
  options.ranks = 2;
  const Result r = run_inproc(p, options, in);
  EXPECT_GT(r.report.wall_s, 0);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(r.report.per_rank[rank].rank, static_cast<int>(rank));
    EXPECT_GT(r.report.per_rank[rank].compute_s, 0);
    EXPECT_GE(r.report.per_rank[rank].exposed_wait_s, 0);
    EXPECT_LE(r.report.per_rank[rank].compute_s + r.report.per_rank[rank].exposed_wait_s, r.report.wall_s);
  }
}

}  // namespace
}  // namespace kvring::test
