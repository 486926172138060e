#include "cli/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/measured_calls.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

// Seconds that this machine would take.
struct Truth {
  double operation_s = 1e-11, read_s = 1e-10, keys_s = 7e-10, rows_s = 5e-10;
  double latency_s = 1e-3, byte_s = 1e-8, taken_s = 3e-9, busy_share = 0.75;
  int threads = 2;

  double of(const Call& call) const {
    return call.operations() * operation_s + call.key_bytes() * keys_s + call.row_bytes() * rows_s;
  }
  double shift(double bytes) const { return latency_s + (bytes - kSmallBytes) * byte_s; }
  Measured measured(const std::string& host) const {
    Measured m{host, 64e9, 1e6, {}};
    const Call keys = keys_call(threads);
    for (const DType dtype : kMeasuredDTypes)
      m.seconds[std::string(dtype_name(dtype))] = {of(long_call(dtype, threads))};
    m.seconds["short"] = {of(short_call(threads))};
    m.seconds["keys"] = {keys.key_bytes() * (keys_s + read_s)};
    m.seconds["read"] = {read_s};
    m.seconds["small"] = {shift(kSmallBytes)};
    m.seconds["large"] = {shift(kLargeBytes)};
    m.seconds["busy"] = {m.seconds["f32"][0] + taken_s * m.meanwhile_bytes};
    m.seconds["beside"] = {latency_s + (m.meanwhile_bytes - kSmallBytes) * byte_s / busy_share};
    return m;
  }
};

double value(const Json& figure) { return figure.at("value").get<double>(); }

void expect_about(double got, double wanted, const char* what) { EXPECT_NEAR(got / wanted, 1, 1e-6) << what; }

TEST(MachineProfile, FindsTheRatesOfTheMachineThatWasMeasured) {
  const Truth truth;
  const Json machine = machine_profile({truth.measured("a"), truth.measured("b")}, truth.threads, "a test");
  for (const char* dtype : {"f32", "bf16", "f16"})
    expect_about(value(machine["flops_per_s"][dtype]), 1 / truth.operation_s, dtype);
  expect_about(value(machine["memory_bytes_per_s"]), 1 / truth.read_s, "read");
  expect_about(value(machine["calls"]["keys_bytes_per_s"]), 1 / truth.keys_s, "keys");
  expect_about(value(machine["calls"]["rows_bytes_per_s"]), 1 / truth.rows_s, "rows");
  const Json& link = machine["between_nodes"];
  expect_about(value(link["bytes_per_s"]), 1 / truth.byte_s, "link");
  expect_about(value(link["latency_s"]), truth.latency_s, "latency");
  expect_about(value(link["computing_s_per_byte"]), truth.taken_s, "taken");
  expect_about(value(link["computing_bytes_per_s"]), truth.busy_share / truth.byte_s, "beside computing");
  EXPECT_EQ(value(machine["ranks_per_node"]), 1);
  EXPECT_EQ(value(machine["threads"]), 2);
  EXPECT_EQ(value(machine["memory_bytes"]), 64e9);
}

TEST(MachineProfile, TheSlowestRankCountsAndSharesTheMemoryOfItsHost) {
  const Truth fast;
  Truth slow;
  slow.operation_s *= 2;
  const Json machine = machine_profile({fast.measured("a"), slow.measured("a")}, fast.threads, "a test");
  expect_about(value(machine["flops_per_s"]["f32"]), 1 / slow.operation_s, "f32");
  EXPECT_EQ(value(machine["ranks_per_node"]), 2);
  EXPECT_EQ(value(machine["memory_bytes"]), 32e9);
  EXPECT_FALSE(machine.contains("between_nodes"));
  expect_about(value(machine["within_node"]["bytes_per_s"]), 1 / fast.byte_s, "link");
}

// Three rounds, one undisturbed, one in which each rank was slowed down.
TEST(MachineProfile, CoresAreAsSlowAsOnAverageLinksAsFastAsTheyCan) {
  const Truth truth;
  std::vector<Measured> ranks = {truth.measured("a"), truth.measured("b")};
  for (Measured& rank : ranks)
    for (auto& [name, rounds] : rank.seconds) rounds = {rounds[0], rounds[0], rounds[0]};
  ranks[0].seconds["f32"][0] *= 1.3;
  ranks[1].seconds["f32"][2] *= 1.5;
  ranks[1].seconds["large"][1] *= 2;
  ranks[0].seconds["short"][0] *= 3;
  const Json machine = machine_profile(ranks, truth.threads, "a test");
  const double slowdown = (1.3 + 1 + 1.5) / 3;
  expect_about(value(machine["flops_per_s"]["f32"]), 1 / (slowdown * truth.operation_s), "f32");
  expect_about(value(machine["flops_per_s"]["bf16"]), 1 / (slowdown * truth.operation_s), "bf16");
  expect_about(value(machine["memory_bytes_per_s"]), 1 / (slowdown * truth.read_s), "read");
  expect_about(value(machine["calls"]["keys_bytes_per_s"]), 1 / (slowdown * truth.keys_s), "keys");
  expect_about(value(machine["calls"]["rows_bytes_per_s"]), 1 / (slowdown * truth.rows_s), "rows");
  const Json& link = machine["between_nodes"];
  expect_about(value(link["computing_s_per_byte"]), slowdown * truth.taken_s, "taken");
  expect_about(value(link["bytes_per_s"]), 1 / truth.byte_s, "link");
}

TEST(MachineProfile, ARankAloneHasTheLinksOfItsMemory) {
  const Truth truth;
  Measured alone = truth.measured("a");
  for (const char* name : {"small", "large", "busy", "beside"}) alone.seconds.erase(name);
  const Json machine = machine_profile({alone}, truth.threads, "a test");
  EXPECT_EQ(machine["within_node"]["bytes_per_s"], machine["memory_bytes_per_s"]);
  EXPECT_EQ(value(machine["within_node"]["latency_s"]), 0);
}

// Noise can make a short call seem faster than its arithmetic: no rate is negative, none infinite.
TEST(MachineProfile, WhatNoiseHidesIsNotPriced) {
  const Truth truth;
  Measured rank = truth.measured("a");
  rank.seconds["short"] = {1e-6};
  rank.seconds["keys"] = {1e-6};
  rank.seconds["large"] = rank.seconds["small"];
  rank.seconds["busy"] = {0.5 * rank.seconds["f32"][0]};
  rank.seconds["beside"] = {0.9 * rank.seconds["small"][0]};
  const Json machine = machine_profile({rank, rank}, truth.threads, "a test");
  for (const Json& rate : {machine["calls"]["keys_bytes_per_s"], machine["calls"]["rows_bytes_per_s"],
                           machine["flops_per_s"]["f32"], machine["within_node"]["bytes_per_s"]}) {
    EXPECT_GT(value(rate), 0) << rate;
    EXPECT_LT(value(rate), 1e16) << rate;
  }
  EXPECT_FALSE(machine["within_node"].contains("computing_s_per_byte"));
  EXPECT_FALSE(machine["within_node"].contains("computing_bytes_per_s"));
  const Call call = long_call(DType::kF32, truth.threads);
  expect_about(value(machine["flops_per_s"]["f32"]), call.operations() / rank.seconds["f32"][0], "f32");
}

TEST(MachineProfile, SlowKeysLeaveSomethingForTheArithmetic) {
  const Truth truth;
  Measured rank = truth.measured("a");
  rank.seconds["keys"] = {1e3};
  EXPECT_GT(value(machine_profile({rank}, truth.threads, "a test")["flops_per_s"]["f32"]), 0);
}

}  // namespace
}  // namespace kvring::cli
