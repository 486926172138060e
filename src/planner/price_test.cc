#include "planner/price.h"

#include <gmock/gmock.h>

#include <map>

#include "kvring/error.h"
#include "planner/test_support.h"
#include "problem/support.h"

namespace kvring {
namespace {

using testing::HasSubstr;

TEST(Price, ARingTakesTheLongerOfComputingAndTransferInEveryStep) {
  // Slices of 1,024: 1024^2 * 512 flops = 0.537 ms; 1,024 keys of 512 bytes over 1 GB/s = 0.524 ms.
  const Machine machine = round_machine();
  const double compute = 1024.0 * 1024 * 512 / 1e12, transfer = 1024.0 * 512 / 1e9;
  const Setting hidden(machine, attention(8192, 8192, 1, 1), {8, 4, {}});
  const Price a = price_schedule(ScheduleKind::kRing, hidden);
  EXPECT_DOUBLE_EQ(a.compute_s_per_step, compute);
  EXPECT_DOUBLE_EQ(a.transfer_s_per_step, transfer);
  EXPECT_DOUBLE_EQ(a.total_s, 8 * compute);
  EXPECT_EQ(a.exposed_s, 0);
  EXPECT_EQ(a.bytes_per_hop, 1024 * 512);
  // Half the slice: a quarter of the computing, half of the transfer.
  const Setting exposed(machine, attention(4096, 4096, 1, 1), {8, 4, {}});
  const Price b = price_schedule(ScheduleKind::kRing, exposed);
  EXPECT_DOUBLE_EQ(b.total_s, 7 * transfer / 2 + compute / 4);
  EXPECT_DOUBLE_EQ(b.exposed_s, 7 * (transfer / 2 - compute / 4));
  EXPECT_EQ(break_even_slice(exposed), 1000);
}

TEST(Price, LapsAndLayersAddUp) {
  const Machine machine = round_machine();
  Workload w = attention(8192, 8192, 3, 3);  // blocks of 512 KiB: laps of 2 and 1
  w.layers = 10;
  const Setting s(machine, w, {8, 4, {}});
  ASSERT_EQ(s.memory().heads_per_lap, 2);
  EXPECT_DOUBLE_EQ(price_schedule(ScheduleKind::kRing, s).total_s, 10 * 3 * 8 * 1024.0 * 1024 * 512 / 1e12);
}

TEST(Price, ACallPacksItsKeysAndPassesItsRows) {
  Machine machine = round_machine();
  Workload w = attention(8192, 8192, 3, 3);  // of 1,024 tokens a rank, in laps of 2 heads and 1
  w.layers = 10;
  const Setting without(machine, w, {8, 4, {}});
  ASSERT_EQ(without.memory().heads_per_lap, 2);
  const double before = price_schedule(ScheduleKind::kRing, without).total_s;
  machine.calls = CallRates{{1e9, "", ""}, {2e9, "", ""}};
  const Setting with(machine, w, {8, 4, {}});
  const double keys = 1024 * 3 * 512, rows = 1024 * 3 * 512;
  const double accumulators = 3 * 22 * 48 * (4 + 129 * 16);  // 22 panels of 48 rows
  const double call = keys / 1e9 + (rows + accumulators) / 2e9;
  EXPECT_NEAR(price_schedule(ScheduleKind::kRing, with).total_s, before + 10 * call, 1e-12);
}

// A rank of a ring keeps accumulators of its own queries, where queries or partials travel of those of all
// ranks; where it meets all keys at once, none.
TEST(Price, ACallPassesTheAccumulatorsOfAllQueriesThatItMeets) {
  Machine machine = round_machine();
  const Workload w = attention(4096, 4096, 4, 4);
  const Setting without(machine, w, {4, 4, {}});
  std::vector<double> before;
  for (const ScheduleKind kind : kSchedules) before.push_back(price_schedule(kind, without).total_s);
  machine.calls = CallRates{{1e30, "", ""}, {2e9, "", ""}};
  const Setting with(machine, w, {4, 4, {}});
  const double rows = 1024 * 4 * 512, set = 4 * 22 * 48 * (4 + 129 * 16);
  const std::map<ScheduleKind, int> met = {{ScheduleKind::kRing, 1},
                                           {ScheduleKind::kAllGather, 0},
                                           {ScheduleKind::kPassQ, 4},
                                           {ScheduleKind::kUlysses, 0},
                                           {ScheduleKind::kTree, 4}};
  for (std::size_t i = 0; i < std::size(kSchedules); ++i)
    EXPECT_NEAR(price_schedule(kSchedules[i], with).total_s,
                before[i] + (rows + met.at(kSchedules[i]) * set) / 2e9, 1e-12)
        << schedule_name(kSchedules[i]);
}

TEST(Price, ACallOfTensorParallelismPacksItsHeads) {
  Machine machine = round_machine();
  Workload w = attention(8192, 8192, 8, 8);  // 2 heads of all tokens a device
  w.layers = 10;
  const double before = price_all(Setting(machine, w, {4, 4, {}})).back().total_s;
  machine.calls = CallRates{{1e9, "", ""}, {2e9, "", ""}};
  ASSERT_EQ(price_all(Setting(machine, w, {4, 4, {}})).back().name, "tensor-parallel");
  const double bytes = 8192 * 2 * 512;  // of keys and values, and of queries and outputs
  EXPECT_NEAR(price_all(Setting(machine, w, {4, 4, {}})).back().total_s,
              before + 10 * (bytes / 1e9 + bytes / 2e9), 1e-12);
}

TEST(Price, TransfersTakeFromComputing) {
  Machine machine = round_machine();
  machine.within_node.computing_s_per_byte.value = 1e-10;
  const Setting s(machine, attention(4 * 1024, 4 * 1024, 1, 1), {4, 4, {}});
  const double compute = 1024.0 * 1024 * 512 / 1e12, block = 1024 * 512;
  // The last step receives nothing.
  EXPECT_DOUBLE_EQ(price_schedule(ScheduleKind::kRing, s).total_s, 4 * compute + 3 * block * 1e-10);
  // Who waits for a transfer anyway loses nothing by it.
  const Price gather = price_schedule(ScheduleKind::kAllGather, s);
  EXPECT_NEAR(gather.total_s, 3 * block / 1e10 + 4 * compute, 1e-12);
}

// A rank of a ring takes one block in, over one link or the other.
TEST(Price, OneBlockTakesFromComputingOnceWhereverItComesFrom) {
  Machine machine = round_machine();
  machine.between_nodes->bytes_per_s.value = 1e10;
  machine.within_node.computing_s_per_byte.value = 1e-10;
  machine.between_nodes->computing_s_per_byte.value = 2e-10;
  const auto total = [&](int per_node) {
    return price_schedule(ScheduleKind::kRing,
                          Setting(machine, attention(8192, 8192, 1, 1), {8, per_node, {}}))
        .total_s;
  };
  EXPECT_DOUBLE_EQ(total(4), total(1));
  EXPECT_LT(total(8), total(1));
}

TEST(Price, WhatHidesBehindComputingHasAShareOfTheLink) {
  Machine machine = round_machine();
  const auto setting = [&](std::int64_t slice) {
    Workload w = attention(4 * slice, 4 * slice, 1, 1);
    w.problem.tile = 64;
    return Setting(machine, w, {4, 4, {}});
  };
  const auto ring = [&](std::int64_t slice) { return price_schedule(ScheduleKind::kRing, setting(slice)); };
  const double compute = 128.0 * 128 * 512 / 1e12, alone = 128.0 * 512 / 1e10;
  EXPECT_EQ(ring(128).exposed_s, 0);
  EXPECT_EQ(break_even_slice(setting(128)), 100);
  machine.within_node.computing_bytes_per_s.value = 5e9;
  EXPECT_EQ(break_even_slice(setting(128)), 200);
  const Price exposed = ring(128), hidden = ring(256);
  EXPECT_NEAR(exposed.transfer_s_per_step, alone + 0.5 * compute, 1e-15);
  EXPECT_NEAR(exposed.exposed_s, 3 * (alone - 0.5 * compute), 1e-15);
  EXPECT_NEAR(exposed.total_s, 4 * compute + exposed.exposed_s, 1e-15);
  EXPECT_NEAR(hidden.transfer_s_per_step, 2 * 256.0 * 512 / 1e10, 1e-15);
  EXPECT_EQ(hidden.exposed_s, 0);
}

TEST(Price, AFewQueriesAreReadAtTheSpeedOfMemory) {
  Machine machine = round_machine();
  machine.memory_bytes_per_s.value = 1e11;
  const Setting s(machine, attention(1, 1 << 20, 8, 1), {1, 4, {}});
  EXPECT_DOUBLE_EQ(price_schedule(ScheduleKind::kRing, s).total_s,
                   (1 << 20) * 512.0 / 1e11);  // the 8 heads compute for less, 4.3 ms
}

TEST(Price, NothingMovesWhereNothingIsSeen) {
  const Machine machine = round_machine();
  Workload w = attention(512, 4096, 1, 1);
  w.problem.causal = true;
  const Setting s(machine, w, {1, 4, {}});
  for (const Price& price : price_all(s)) {
    EXPECT_EQ(price.bytes_per_hop, 0) << price.name;
    EXPECT_EQ(price.exposed_s, 0) << price.name;
  }
}

TEST(Price, AllGatherComputesNothingWhileItGathers) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(16384, 16384, 2, 2), {4, 4, {}});
  const Price price = price_of(price_all(s), "all-gather");
  ASSERT_EQ(s.of(ScheduleKind::kAllGather).memory.heads_per_lap, 1);
  const double gather = 3 * 4096.0 * 512 / 1e10, compute = 4 * 4096.0 * 4096 * 512 / 1e12;
  EXPECT_NEAR(price.total_s, 2 * (gather + compute), 1e-12);
  EXPECT_NEAR(price.exposed_s, 2 * gather, 1e-12);
}

TEST(Price, PassQSendsPartialsHomeWhileItComputesTheNext) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(4 * 512, 1 << 20, 1, 1), {4, 4, {}});
  const Price price = price_of(price_all(s), "pass-q");
  // 512 rows are 11 panels of 48, of 4 + 129 * 16 bytes a row.
  const double partials = 11 * 48 * (4 + 129 * 16), queries = 512 * 128 * 2;
  EXPECT_EQ(price.bytes_per_hop, partials);
  EXPECT_NEAR(price.transfer_s_per_step, (queries + partials) / 1e10, 1e-12);
  // The last partials are all that nothing hides. Each of three that come home is read, and added to the
  // sums.
  const double compute = 512.0 * (1 << 18) * 512 / 1e12;
  EXPECT_NEAR(price.exposed_s, partials / 1e10, 1e-12);
  EXPECT_NEAR(price.total_s, 4 * compute + partials / 1e10 + 3 * 3 * partials / 1e12, 1e-12);
}

TEST(Price, UlyssesNeedsHeadsThatDivide) {
  const Machine machine = round_machine();
  const Setting six(machine, attention(6144, 6144, 32, 8), {6, 4, {}});
  const Price no = price_of(price_all(six), "ulysses");
  EXPECT_THAT(no.not_possible, HasSubstr("do not divide over 6 ranks; use 4 ranks"));
  EXPECT_FALSE(no.usable());
  const Setting eight(machine, attention(8192, 8192, 32, 8), {8, 4, {}});
  const Price yes = price_of(price_all(eight), "ulysses");
  EXPECT_TRUE(yes.usable());
  // A rank's share is one KV head with its four query heads; rows, with their LSE, are the most.
  EXPECT_EQ(yes.bytes_per_hop, 1024 * 4 * (128 * 2 + 4));
  EXPECT_NEAR(yes.compute_s_per_step, 1024.0 * 8192 * 512 * 4 / 1e12, 1e-12);
}

TEST(Price, TensorParallelismCopiesKvHeadsThatAreTooFew) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(4096, 4096, 32, 2), {4, 4, {}});
  const Price price = price_of(price_all(s), "tensor-parallel");
  EXPECT_TRUE(price.usable());
  EXPECT_NEAR(price.compute_s_per_step, 4096.0 * 4096 * 512 * 8 / 1e12, 1e-12);
  EXPECT_EQ(price.memory[1], (std::pair<std::string, std::int64_t>("k", 4096 * 128 * 2)));
  const Setting odd(machine, attention(4096, 4096, 6, 2), {4, 4, {}});
  EXPECT_THAT(price_of(price_all(odd), "tensor-parallel").not_possible,
              HasSubstr("do not divide over 4 ranks"));
}

TEST(Price, ThisBuildRunsWhatTheSupportTableLists) {
  const Machine machine = round_machine();
  const Setting s(machine, attention(4096, 4096, 8, 8), {4, 4, {}});
  for (const Price& price : price_all(s)) {
    EXPECT_TRUE(price.usable()) << price.name;
    bool listed = false;
    for (const SupportRow& row : support_table()) listed |= row.schedule == price.name && !row.dtypes.empty();
    EXPECT_EQ(price.runs_here(), listed) << price.name << ": " << price.not_here;
  }
}

TEST(Setting, DegreesThatDoNotDivideAreNamed) {
  const Machine machine = round_machine();
  try {
    const Setting s(machine, attention(4096, 4096, 12, 4), {2, 4, {8, 1, 1}});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "--mesh tp=8 does not divide the 12 query heads; tp=6 does");
  }
  Workload w = attention(4096, 4096, 16, 2);
  EXPECT_EQ(ring_share(w, {8, 1, 1}).problem.kv_heads, 1);
  EXPECT_EQ(ring_share(w, {8, 1, 1}).problem.q_heads, 2);
}

TEST(LongestContext, IsTheLastThatFits) {
  Machine machine = round_machine();
  machine.memory_bytes.value = 64e6;
  const Workload w = attention(1024, 1024, 8, 8);
  for (const int ranks : {1, 3, 8}) {
    const Placement placement{ranks, 4, {}};
    Workload longest = w;
    const std::int64_t tokens = longest_context(machine, w, placement);
    longest.problem.q_len = longest.problem.kv_len = tokens;
    EXPECT_LE(ring_memory(machine, longest, placement).total(), 64'000'000) << ranks;
    longest.problem.q_len = longest.problem.kv_len = tokens + 512;
    EXPECT_GT(ring_memory(machine, longest, placement).total(), 64'000'000) << ranks;
  }
}

}  // namespace
}  // namespace kvring
