// kvring simulate.
#include <gmock/gmock.h>

#include <set>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::HasSubstr;

class Simulate : public KvringTest {
 protected:
  RunResult simulate(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"simulate", "--machine",  "h100", "--q-heads", "32",      "--kv-heads",
                                      "8",        "--head-dim", "128",  "--seq-len", "1048576", "--causal"};
    words.insert(words.end(), more.begin(), more.end());
    return kvring(words);
  }
  std::string refusal(const std::vector<std::string>& more) const {
    const RunResult result = simulate(more);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }
};

TEST_F(Simulate, JsonHasEveryKey) {
  const RunResult result = simulate({"--ranks", "16", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json json = result.json();
  for (const char* key :
       {"schema_version", "total_s", "planned_s", "efficiency", "laps", "laps_played", "played_s"})
    EXPECT_TRUE(json[key].is_number()) << key;
  EXPECT_EQ(json["per_rank"].size(), 16u);
  for (const char* key :
       {"compute_s", "exposed_s", "exposed_late_s", "exposed_transfer_s", "exposed_send_s", "end_s"})
    EXPECT_TRUE(json["per_rank"][3][key].is_number()) << key;
  EXPECT_TRUE(json["critical_path"]["transfers"].is_number());
  EXPECT_FALSE(json["stalled"].get<bool>());
}

TEST_F(Simulate, ContiguousWastesWhatZigzagDoesNot) {
  const auto efficiency = [&](const char* layout) {
    return simulate({"--ranks", "64", "--layout", layout, "--json"}).json()["efficiency"].get<double>();
  };
  EXPECT_NEAR(efficiency("contiguous"), 64.0 / 127, 0.01);
  EXPECT_GT(efficiency("zigzag"), 0.97);
}

TEST_F(Simulate, FaultsSlowOrStop) {
  const double steady = simulate({"--ranks", "8", "--json"}).json()["total_s"];
  const double slow = simulate({"--ranks", "8", "--faults", "slow=3:2", "--json"}).json()["total_s"];
  EXPECT_NEAR(slow, 2 * steady, 0.1 * steady);
  const RunResult stopped =
      simulate({"--ranks", "8", "--faults", "slow=1:1.1,stop=5:0.01", "--timeout", "2"});
  EXPECT_EQ(stopped.code, 0);
  EXPECT_THAT(stopped.out, HasSubstr("gives up at 2.0"));
  EXPECT_THAT(stopped.out, HasSubstr("rank 5"));
  EXPECT_TRUE(simulate({"--ranks", "8", "--faults", "stop=5:0.01", "--json"}).json()["stalled"].get<bool>());
}

TEST_F(Simulate, AnyScheduleIsPlayed) {
  for (const std::string schedule : {"ring", "all-gather", "pass-q", "ulysses", "tree"}) {
    const nlohmann::json json = simulate({"--ranks", "8", "--schedule", schedule, "--json"}).json();
    EXPECT_EQ(json["schedule"], schedule);
    EXPECT_NEAR(json["total_s"].get<double>() / json["planned_s"].get<double>(), 1, 0.1) << schedule;
  }
  EXPECT_THAT(refusal({"--ranks", "8", "--schedule", "star"}), HasSubstr("schedule 'star' does not exist"));
  EXPECT_THAT(refusal({"--ranks", "16", "--schedule", "ulysses"}), HasSubstr("use 8 ranks"));
}

// Attended blocks and transfers of a trace, of which a run and its simulation have the same.
std::multiset<std::string> work_of(const nlohmann::json& trace) {
  std::multiset<std::string> work;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    nlohmann::json args = event["args"];
    if (args["what"] != "attend" && args["what"] != "send" && args["what"] != "receive") continue;
    args.erase("posted_us");
    args.erase("began_us");
    work.insert(event["pid"].dump() + args.dump());
  }
  return work;
}

TEST_F(Simulate, TracesWhatARunDoes) {
  ASSERT_EQ(kvring({"generate", "--shape", "1,3100,8,16", "--kv-shape", "1,3100,4,16", "--dtype", "bf16",
                    "-o", "qkv.safetensors"})
                .code,
            0);
  for (const std::string schedule : {"ring", "all-gather", "pass-q", "ulysses", "tree"}) {
    for (const std::string layout : {"zigzag", "contiguous"}) {
      const std::vector<std::string> same = {"--causal", "--ranks",    "4",      "--layout",   layout,
                                             "--trace",  "trace.json", "--json", "--schedule", schedule};
      std::vector<std::string> words = {"attend", "--input", "qkv.safetensors", "--threads", "1"};
      words.insert(words.end(), same.begin(), same.end());
      const RunResult run = kvring(words);
      ASSERT_EQ(run.code, 0) << run.err;
      const auto real = nlohmann::json::parse(read_file(file("trace.json")));
      words = {"simulate", "--machine",  "h100", "--q-heads", "8",   "--kv-heads",
               "4",        "--head-dim", "16",   "--seq-len", "3100"};
      words.insert(words.end(), same.begin(), same.end());
      const RunResult played = kvring(words);
      ASSERT_EQ(played.code, 0) << played.err;
      const auto simulated = nlohmann::json::parse(read_file(file("trace.json")));
      EXPECT_EQ(work_of(real), work_of(simulated)) << schedule << ", " << layout;
      EXPECT_TRUE(simulated["otherData"]["simulated"].get<bool>());
      EXPECT_EQ(simulated["otherData"]["problem"], real["otherData"]["problem"]);
      for (int r = 0; r < 4; ++r) {
        for (const char* key : {"tiles_full", "tiles_partial", "tiles_skipped"})
          EXPECT_EQ(simulated["otherData"]["per_rank"][r][key], real["otherData"]["per_rank"][r][key])
              << schedule << ", " << layout << ", rank " << r << " " << key;
      }
    }
  }
}

TEST_F(Simulate, NeedsARingSizeAndAnOutputWithAName) {
  EXPECT_THAT(refusal({}), HasSubstr("--ranks is missing: a simulation is of a ring size"));
  EXPECT_THAT(refusal({"--ranks", "auto"}), HasSubstr("--ranks is auto: a simulation is of a ring size"));
  EXPECT_THAT(refusal({"--ranks", "4", "--trace", ""}), HasSubstr("--trace is empty"));
}

TEST_F(Simulate, ATraceReadsAsTheReportDoes) {
  const auto report =
      simulate({"--ranks", "16", "--faults", "slow=3:1.5", "--trace", "run.json", "--json"}).json();
  const RunResult drawn = kvring({"trace", "run.json", "--json", "-o", "run.svg"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const auto sums = drawn.json();
  EXPECT_TRUE(sums["simulated"].get<bool>());
  EXPECT_NEAR(sums["wall_s"].get<double>(), report["total_s"].get<double>(), 1e-9);
  for (int r = 0; r < 16; ++r) {
    const auto& of_run = report["per_rank"][r];
    EXPECT_NEAR(sums["per_rank"][r]["busy_s"].get<double>(), of_run["compute_s"].get<double>(), 1e-6);
    for (const char* key : {"exposed_late_s", "exposed_transfer_s", "exposed_send_s"})
      EXPECT_NEAR(sums["per_rank"][r][key].get<double>(), of_run[key].get<double>(), 1e-6) << key;
  }
  EXPECT_THAT(read_file(file("run.svg")), HasSubstr("Simulated: 16 ranks"));
  EXPECT_EQ(report["laps_traced"], report["laps"]);
}

TEST_F(Simulate, TracesThatCannotBeAreRefusedAndLeaveNoFile) {
  EXPECT_THAT(refusal({"--ranks", "1024", "--trace", "run.json"}), HasSubstr("trace at most 273 ranks"));
  EXPECT_THAT(refusal({"--ranks", "8", "--trace", "none/run.json"}),
              HasSubstr("does not exist; create it first"));
  EXPECT_THAT(refusal({"--ranks", "8", "--trace", "run.json", "--faults", "slow=9:1"}),
              HasSubstr("the ring has 8"));
  write_file(file("here.json"), R"({"name": "here", "flops_per_s": {"bf16": 1e12}, "memory_bytes": 1e12,
    "memory_bytes_per_s": 1e12, "ranks_per_node": 4, "threads": 1,
    "within_node": {"bytes_per_s": 1e10, "latency_s": 0}})");
  const RunResult result = kvring({"simulate", "--machine", "here.json", "--ranks", "4", "--q-heads", "1",
                                   "--head-dim", "64", "--seq-len", "4096", "--trace", "./here.json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("./here.json is an input as well"));
  EXPECT_THAT(names(), testing::ElementsAre("here.json"));
}

TEST_F(Simulate, EveryFlagNamesWhatIsWrong) {
  EXPECT_THAT(refusal({}), HasSubstr("--ranks is missing"));
  EXPECT_THAT(refusal({"--ranks", "5000"}), HasSubstr("--ranks is 5000"));
  EXPECT_THAT(refusal({"--ranks", "8", "--jitter", "-1"}), HasSubstr("--jitter is -1"));
  EXPECT_THAT(refusal({"--ranks", "8", "--seed", "x"}), HasSubstr("--seed is 'x'"));
  EXPECT_THAT(refusal({"--ranks", "8", "--timeout", "0"}), HasSubstr("--timeout is 0"));
  EXPECT_THAT(refusal({"--ranks", "8", "--faults", "slow=3"}), HasSubstr("--faults is 'slow=3'"));
  EXPECT_THAT(refusal({"--ranks", "8", "--faults", "kill=3:1"}), HasSubstr("such as slow=3:1.5"));
  EXPECT_THAT(refusal({"--ranks", "8", "--faults", "slow=8:1"}),
              HasSubstr("--faults names rank 8; the ring has 8"));
  EXPECT_THAT(refusal({"--ranks", "8", "--faults", "slow=1:nan"}), HasSubstr("a number of --faults is nan"));
  EXPECT_THAT(refusal({"--ranks", "8", "--faults", "slow=3:2,link=3:2,slow=3:2"}),
              HasSubstr("--faults has slow=3 twice"));
}

}  // namespace
}  // namespace kvring::cli
