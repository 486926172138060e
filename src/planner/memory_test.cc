// The planner's bytes are the ledger's bytes of real runs.
#include <gtest/gtest.h>

#include <map>

#include "planner/test_support.h"
#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

struct Case {
  const char* name;
  std::int64_t queries, keys, batch, q_heads, kv_heads, dim, value_dim;
  DType dtype;
  bool causal;
  LayoutKind layout;
  int ranks, threads;
};

TEST(PlannedMemory, IsTheLedgerOfARealRing) {
  for (const Case& c :
       {Case{"plain", 96, 96, 1, 4, 2, 8, 8, DType::kF32, false, LayoutKind::kContiguous, 5, 1},
        Case{"causal", 200, 200, 1, 4, 2, 8, 8, DType::kF32, true, LayoutKind::kZigzag, 3, 2},
        Case{"bf16", 192, 192, 2, 4, 4, 16, 8, DType::kBF16, true, LayoutKind::kStriped, 4, 1},
        Case{"decode", 1, 256, 1, 8, 2, 8, 8, DType::kF16, true, LayoutKind::kZigzag, 3, 4},
        Case{"one", 128, 128, 1, 2, 1, 8, 8, DType::kF32, true, LayoutKind::kZigzag, 1, 2}}) {
    Workload w;
    Problem& p = w.problem;
    p = plain_problem(c.queries, c.dim);
    p.q_len = c.queries;
    p.kv_len = c.keys;
    p.batch = c.batch;
    p.q_heads = c.q_heads;
    p.kv_heads = c.kv_heads;
    p.value_dim = c.value_dim;
    p.causal = c.causal;
    p.q_dtype = p.kv_dtype = p.out_dtype = c.dtype;
    w.layout.kind = c.layout;
    Machine machine = round_machine();
    machine.threads.value = c.threads;
    const RankMemory planned = ring_memory(machine, w, {c.ranks, 0, {}});

    Rng rng(77);
    const Inputs in = random_inputs(rng, p);
    RingOptions options;
    options.threads = c.threads;
    const Layouts layouts = make_layouts(w.layout, p, c.ranks);
    const Result run = run_ring(odd_transports<Rendezvous>(c.ranks), p, layouts, options, in);
    std::int64_t most = 0;
    for (const RankReport& rank : run.report.per_rank) most = std::max(most, rank.peak_bytes);
    const RankReport& fullest = run.report.per_rank[static_cast<std::size_t>(planned.rank)];
    EXPECT_EQ(planned.attention, fullest.ledger_bytes) << c.name;
    EXPECT_EQ(planned.total(), most) << c.name;
  }
}

}  // namespace
}  // namespace kvring::test
