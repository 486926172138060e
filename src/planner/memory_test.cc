// The planner's bytes are the ledger's bytes of real runs.
#include <gtest/gtest.h>

#include <map>

#include "planner/setting.h"
#include "planner/test_support.h"
#include "schedule/step.h"
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

TEST(PlannedMemory, IsTheLedgerOfARealRunOfEverySchedule) {
  for (const Case& c :
       {Case{"plain", 96, 96, 1, 4, 2, 8, 8, DType::kF32, false, LayoutKind::kContiguous, 5, 1},
        Case{"causal", 200, 200, 1, 4, 2, 8, 8, DType::kF32, true, LayoutKind::kZigzag, 3, 2},
        Case{"bf16", 192, 192, 2, 4, 4, 16, 8, DType::kBF16, true, LayoutKind::kStriped, 4, 1},
        Case{"decode", 1, 256, 1, 8, 2, 8, 8, DType::kF16, true, LayoutKind::kZigzag, 3, 4},
        Case{"shared", 96, 96, 2, 4, 4, 8, 8, DType::kF32, true, LayoutKind::kZigzag, 4, 2},
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
    const Setting setting(machine, w, {c.ranks, c.ranks, {}});
    for (const ScheduleKind schedule : kSchedules) {
      const std::string where = std::string(c.name) + ", " + schedule_name(schedule);
      if (!schedule_refusal(schedule, p, c.ranks).empty()) continue;
      const auto& [work, planned] = setting.of(schedule);
      Rng rng(77);
      const Inputs in = random_inputs(rng, p);
      RingOptions options;
      options.schedule = schedule;
      options.threads = c.threads;
      const Result run = run_ring(odd_transports<Rendezvous>(c.ranks), p, setting.layouts(), options, in);
      std::int64_t most = 0;
      for (const RankReport& rank : run.report.per_rank) most = std::max(most, rank.peak_bytes);
      const RankReport& fullest = run.report.per_rank[static_cast<std::size_t>(planned.rank)];
      EXPECT_EQ(planned.attention, fullest.ledger_bytes) << where;
      EXPECT_EQ(planned.total(), most) << where;
      const std::int64_t laps = (setting.units() + planned.heads_per_lap - 1) / planned.heads_per_lap;
      for (const RankReport& rank : run.report.per_rank)
        EXPECT_EQ(rank.hops, laps * work.sent[static_cast<std::size_t>(rank.rank)]) << where;
    }
  }
}

}  // namespace
}  // namespace kvring::test
