// What moves, how often, and how much of it is held at once.
#include "tests/cases/cases.h"
#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

// "send-then-receive deadlocks on a transport without buffering"
TEST(Faults, SendThenReceiveDeadlocksWithoutBuffers) {
  Rng rng(101);
  for (int ranks : {2, 3}) {
    const Problem p = sequence(50, 4);
    const Inputs in = random_inputs(rng, p);
    for (std::int64_t heads_per_lap : {1, 2}) {
      const Result r = run_ring(odd_transports<Rendezvous>(ranks), p, make_layouts({}, p, ranks),
                                one_thread(heads_per_lap), in);
      EXPECT_TRUE(same_bits(r, one_rank(p, in)));
    }
  }
}

// "all K and V of the ring kept": at most two travelling blocks per rank, by the ledger.
TEST(Faults, AllKeysAndValuesOfTheRingKept) {
  const Problem p = sequence(8 * 64, 8);
  Rng rng(102);
  const Inputs in = random_inputs(rng, p);
  const std::int64_t kv_bytes = p.kv_len * p.kv_heads * (p.head_dim + p.value_dim) * 4;
  for (const Result& r :
       {run_ring(p, make_layouts({}, p, 8), one_thread(p.kv_heads), in),
        run_ring(odd_transports<Rendezvous>(8), p, make_layouts({}, p, 8), one_thread(p.kv_heads), in)}) {
    for (const RankReport& rank : r.report.per_rank) {
      std::int64_t blocks = 0, block_bytes = 0;
      for (const auto& [name, bytes] : rank.ledger_bytes) {
        if (!name.starts_with("block")) continue;
        ++blocks;
        block_bytes += bytes;
      }
      EXPECT_EQ(blocks, 2);
      EXPECT_EQ(block_bytes, 2 * kv_bytes / 8);  // of all heads, as the lap carries all
    }
  }
}

// "P hops where P-1 suffice"
TEST(Faults, RingMakesPHopsWherePMinusOneSuffice) {
  const Problem p = sequence(4 * 16, 8);
  Rng rng(103);
  const Inputs in = random_inputs(rng, p);
  const std::int64_t block_bytes = p.kv_len / 4 * (p.head_dim + p.value_dim) * 4;  // of one head
  for (std::int64_t heads_per_lap : {1, 2}) {
    const std::int64_t laps = p.kv_heads / heads_per_lap;
    AttendOptions options = ring_of(4);
    options.ring.heads_per_lap = heads_per_lap;
    const Result r = run_inproc(p, options, in);
    for (const RankReport& rank : r.report.per_rank) {
      EXPECT_EQ(rank.hops, laps * 3);
      EXPECT_EQ(rank.bytes_sent, laps * 3 * heads_per_lap * block_bytes);
    }
  }
}

}  // namespace
}  // namespace kvring::test
