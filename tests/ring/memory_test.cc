// What a rank holds: the ledger, its limit, and how both fall with the ring.
#include <gmock/gmock.h>

#include <map>
#include <regex>

#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

std::map<std::string, std::int64_t> ledger_of(const RankReport& report) {
  return {report.ledger_bytes.begin(), report.ledger_bytes.end()};
}

std::int64_t sum(const RankReport& report) {
  std::int64_t bytes = 0;
  for (const auto& entry : report.ledger_bytes) bytes += entry.second;
  return bytes;
}

TEST(RingMemory, LedgerListsEveryBufferByItsSize) {
  Problem p = plain_problem(96, 8);
  p.kv_dtype = DType::kBF16;
  Rng rng(241);
  const Inputs in = random_inputs(rng, p);
  for (const bool copying : {false, true}) {
    const Layouts layouts = make_layouts({LayoutKind::kContiguous}, p, 5);  // 12 tiles over 5 ranks: uneven
    const Result r = run_ring(copying ? odd_transports<Rendezvous>(5) : make_inproc_transports(5, kDeadline),
                              p, layouts, one_thread(1), in);
    for (std::size_t rank = 0; rank < 5; ++rank) {
      const RankReport& report = r.report.per_rank[rank];
      const std::int64_t tokens = layouts.q.shards[rank].tokens();
      EXPECT_EQ(report.tokens, tokens);
      auto ledger = ledger_of(report);
      EXPECT_EQ(ledger["q"], tokens * 4 * 8 * 4);
      EXPECT_EQ(ledger["k"], tokens * 2 * 8 * 2);
      EXPECT_EQ(ledger["v"], tokens * 2 * 8 * 2);
      EXPECT_EQ(ledger["out"], tokens * 4 * 8 * 4);
      EXPECT_EQ(ledger["lse"], tokens * 4 * 4);
      // Whole panels of 48 rows of the 2 heads of a group; a block of one KV head that takes the longest
      // shard, or where pointers pass, the rank's own.
      EXPECT_EQ(ledger["accumulators"], (tokens * 2 + 47) / 48 * 48 * (4 + 9 * 16));
      EXPECT_EQ(ledger["block_0"], (copying ? 24 : tokens) * (8 + 8) * 2);
      EXPECT_EQ(ledger["block_1"], ledger["block_0"]);
      EXPECT_GT(ledger["scratch"], 0);
      EXPECT_EQ(ledger.size(), 9u);  // at most two blocks
      EXPECT_EQ(report.peak_bytes, sum(report));
    }
  }
}

TEST(RingMemory, LedgerFallsWithTheRing) {
  Problem p = plain_problem(8 * 768, 64);
  p.window_left = p.window_right = 64;
  Rng rng(242);
  const Inputs in = random_inputs(rng, p);
  const auto held = [&](int ranks) {
    const Result r = run_ring(p, make_layouts({}, p, ranks), one_thread(p.kv_heads), in);
    std::int64_t most = 0;
    for (const RankReport& rank : r.report.per_rank)
      most = std::max(most, sum(rank) - ledger_of(rank)["scratch"]);
    return most;
  };
  // The scratch of a thread depends on the tile alone; and a ring of one holds one block, not two.
  const std::int64_t two = held(2);
  EXPECT_EQ(held(4), two / 2);
  EXPECT_EQ(held(8), two / 4);
}

TEST(RingMemory, TooLittleMemoryNamesARingThatFits) {
  const Problem p = plain_problem(4096, 64);
  Rng rng(243);
  const Inputs in = random_inputs(rng, p);
  for (std::int64_t heads_per_lap : {0, 1, 2}) {
    RingOptions options = one_thread(heads_per_lap);
    options.rank_memory = 600000;
    const auto endings =
        on_ranks(2, [&](Transport& end) { Ring ring(p, make_layouts({}, p, 2), options, end); });
    int named = 0;
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::kOutOfBudget);
      std::smatch match;
      ASSERT_TRUE(std::regex_search(ending.message, match, std::regex("; (\\d+) ranks would fit")))
          << ending.message;
      EXPECT_THAT(ending.message, testing::HasSubstr("more than the limit of 600000"));
      EXPECT_TRUE(named == 0 || named == std::stoi(match[1]));
      named = std::stoi(match[1]);
    }
    // What it names does fit, one rank less does not.
    expect_no_failure(on_ranks(named, [&](Transport& end) {
      Ring ring(p, make_layouts({}, p, named), options, end);
      LocalTensors local(p, make_layouts({}, p, named), in, end.rank());
      local.attend(ring);
      EXPECT_LE(ring.report().peak_bytes, options.rank_memory);
    }));
    for (const Ending& ending : on_ranks(
             named - 1, [&](Transport& end) { Ring ring(p, make_layouts({}, p, named - 1), options, end); }))
      EXPECT_EQ(ending.code, ErrorCode::kOutOfBudget)
          << named << " ranks named, heads_per_lap " << heads_per_lap;
  }
}

TEST(RingMemory, NoRingFitsWhenTheScratchAloneIsTooMuch) {
  const Problem p = plain_problem(4096, 64);
  RingOptions options = one_thread();
  options.rank_memory = 1000;
  const Timer timer;
  for (const Ending& ending :
       on_ranks(8, [&](Transport& end) { Ring ring(p, make_layouts({}, p, 8), options, end); })) {
    EXPECT_EQ(ending.code, ErrorCode::kOutOfBudget);
    EXPECT_THAT(ending.message, testing::HasSubstr("no ring of up to 1024 ranks would fit"));
  }
  EXPECT_LT(timer.seconds(), kQuickly);
}

// Fewer heads per lap where that makes it fit, and the same bits.
TEST(RingMemory, LimitShrinksTheLap) {
  Problem p = plain_problem(512, 32);
  p.kv_heads = p.q_heads = 8;
  Rng rng(244);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 2);
  const Result wide = run_ring(p, layouts, one_thread(), in);
  RingOptions tight = one_thread();
  tight.rank_memory = sum(wide.report.per_rank[0]) - 1;
  const Result narrow = run_ring(p, layouts, tight, in);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_LE(sum(narrow.report.per_rank[rank]), tight.rank_memory);
    EXPECT_GT(narrow.report.per_rank[rank].hops, wide.report.per_rank[rank].hops);
  }
  EXPECT_TRUE(same_bits(wide, narrow));
}

}  // namespace
}  // namespace kvring::test
