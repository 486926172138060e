// kvring plan.
#include <gmock/gmock.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Plan : public KvringTest {
 protected:
  // A plan of 8 ranks; what follows overrides nothing, so `without` takes flags away.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"plan", "--machine",  "h100", "--q-heads", "32",    "--kv-heads",
                                      "8",    "--head-dim", "128",  "--seq-len", "65536", "--causal"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  RunResult plan(const std::vector<std::string>& more = {}) const { return kvring(command(more)); }

  std::string refusal(const std::vector<std::string>& words, int code = 2) const {
    const RunResult result = kvring(words);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }
  std::string refusal_of(const std::vector<std::string>& more, int code = 2) const {
    return refusal(command(more), code);
  }
};

TEST_F(Plan, JsonHasEveryKey) {
  const RunResult result = plan({"--ranks", "8", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const nlohmann::json json = result.json();
  for (const char* key : {"schema_version", "schedules", "break_even_slice_tokens", "max_context_tokens",
                          "slowest_hop", "choice", "reason"})
    EXPECT_TRUE(json.contains(key)) << key;
  std::vector<std::string> names;
  for (const auto& schedule : json["schedules"]) {
    names.push_back(schedule["name"]);
    for (const char* key :
         {"compute_s_per_step", "transfer_s_per_step", "exposed_s", "total_s", "bytes_per_hop"})
      EXPECT_TRUE(schedule[key].is_number()) << schedule["name"] << key;
    EXPECT_TRUE(schedule["memory_bytes"].is_object());
    EXPECT_TRUE(schedule["fits"].is_boolean());
  }
  EXPECT_THAT(names, ElementsAre("ring", "all-gather", "pass-q", "ulysses", "tree", "tensor-parallel"));
  EXPECT_EQ(json["choice"], "ring");
  EXPECT_EQ(json["run"]["schedule"], "ring");
  EXPECT_EQ(json["run"]["ranks"], 8);
  EXPECT_EQ(json["schedules"][0]["memory_bytes"]["q"], 65536 / 8 * 32 * 128 * 2);
}

TEST_F(Plan, TableSaysTheSame) {
  const RunResult result = plan({"--ranks", "8"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* text :
       {"schedule", "tensor-parallel", "longest context", "slowest hop", "ring: every hop hides"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(Plan, AutoFindsRanksAndMesh) {
  const nlohmann::json json = plan({"--layers", "32", "--hidden", "4096", "--ffn", "14336", "--vocab",
                                    "128256", "--training", "--zero", "1", "--json", "--ranks", "auto"})
                                  .json();
  EXPECT_TRUE(json["schedules"][0]["fits"].get<bool>());
  EXPECT_GT(json["ranks"].get<int>() * json["mesh"]["tp"].get<int>(), 1);
  EXPECT_TRUE(json["schedules"][0]["memory_bytes"].contains("optimizer"));
  EXPECT_FALSE(json["larger_rings"].empty());
}

TEST_F(Plan, WhatCannotBeIsNull) {
  const nlohmann::json json = plan({"--ranks", "6", "--json"}).json();
  const auto& ulysses = json["schedules"][3];
  EXPECT_TRUE(ulysses["total_s"].is_null());
  EXPECT_THAT(ulysses["note"].get<std::string>(), HasSubstr("do not divide over 6 ranks; use 4 ranks"));
  EXPECT_TRUE(plan({"--ranks", "1", "--json"}).json()["slowest_hop"].is_null());
}

TEST_F(Plan, DrawsTheRegimes) {
  ASSERT_EQ(plan({"--ranks", "8", "--plot", "regimes.svg"}).code, 0);
  EXPECT_THAT(names(), ElementsAre("regimes.svg"));
  EXPECT_THAT(read_file(file("regimes.svg")), HasSubstr("</svg>"));
  EXPECT_THAT(refusal_of({"--ranks", "1", "--plot", "one.svg"}), HasSubstr("--plot is for rings of 2 to"));
  EXPECT_THAT(refusal_of({"--ranks", "8", "--plot", "none/a.svg"}),
              HasSubstr("none/a.svg: directory none does not exist"));
  EXPECT_THAT(names(), ElementsAre("regimes.svg"));
}

TEST_F(Plan, TakesAMachineFile) {
  write_file(file("m.json"),
             R"({"flops_per_s": {"bf16": 1e12}, "memory_bytes": 1e12, "memory_bytes_per_s": 1e11,
    "ranks_per_node": 4, "threads": 2, "within_node": {"bytes_per_s": 1e9, "latency_s": 0}})");
  const std::vector<std::string> words = {"plan",       "--machine", "m.json",    "--q-heads", "4",
                                          "--head-dim", "64",        "--seq-len", "65536",     "--ranks"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  EXPECT_EQ(kvring(with({"4"})).code, 0);
  EXPECT_THAT(refusal(with({"5"})), HasSubstr("no links between nodes: at most 4 ranks, not 5"));
  EXPECT_THAT(refusal(with({"4", "--dtype", "f32"})), HasSubstr("no rate for dtype f32; it has bf16"));
  EXPECT_THAT(refusal(with({"4", "--plot", "m.json"})), HasSubstr("the output m.json is an input as well"));
  EXPECT_EQ(kvring(with({"4"})).code, 0);
  write_file(file("m.json"), "{\"memory\": 1}");
  EXPECT_THAT(refusal(with({"4"}), 3), HasSubstr("m.json: flops_per_s is missing"));
}

TEST_F(Plan, CalibrateWritesAMachineThatPlansAndSimulates) {
  ASSERT_EQ(kvring({"plan", "--calibrate", "here.json", "--ranks", "2"}).code, 0);
  EXPECT_THAT(names(), ElementsAre("here.json"));
  const auto machine = nlohmann::json::parse(read_file(file("here.json")));
  for (const char* figure : {"keys_bytes_per_s", "rows_bytes_per_s"})
    EXPECT_GT(machine["calls"][figure]["value"].get<double>(), 0) << figure;
  for (const char* command : {"plan", "simulate"}) {
    const RunResult result = kvring({command, "--machine", "here.json", "--ranks", "2", "--q-heads", "8",
                                     "--head-dim", "64", "--seq-len", "8192", "--dtype", "f32"});
    EXPECT_EQ(result.code, 0) << result.err;
  }
  EXPECT_THAT(refusal_of({"--calibrate", "here.json"}),
              HasSubstr("--calibrate measures this machine and plans nothing"));
  EXPECT_THAT(refusal({"plan", "--calibrate", "here.json", "--dtype", "f32"}), HasSubstr("not with --dtype"));
  EXPECT_THAT(refusal({"plan", "--calibrate", ""}), HasSubstr("--calibrate is empty"));
}

TEST_F(Plan, EveryFlagNamesWhatIsWrong) {
  EXPECT_THAT(refusal({"plan"}), HasSubstr("--machine is missing"));
  EXPECT_THAT(refusal({"plan", "--machine", "h100"}), HasSubstr("--q-heads is missing"));
  EXPECT_THAT(refusal({"plan", "--machine", "h200", "--q-heads", "8", "--head-dim", "64"}),
              HasSubstr("--seq-len is missing"));
  EXPECT_THAT(refusal({"plan", "--machine", "b300"}),
              HasSubstr("'b300', which is no machine of the catalogue (a100"));
  EXPECT_THAT(refusal_of({"--ranks", "0"}), HasSubstr("--ranks is 0; it must be 1 to 4096"));
  EXPECT_THAT(refusal_of({"--ranks", "many"}), HasSubstr("--ranks is 'many'"));
  EXPECT_THAT(refusal_of({"--ranks-per-node", "0"}), HasSubstr("--ranks-per-node is 0"));
  EXPECT_THAT(refusal_of({"--kv-len", "1000"}), HasSubstr("--kv-len is 1000, less than --seq-len 65536"));
  EXPECT_THAT(refusal_of({"--value-dim", "0"}), HasSubstr("--value-dim is 0; it must be 1 to"));
  EXPECT_THAT(refusal_of({"--value-dim", "300"}), HasSubstr("300"));
  EXPECT_THAT(refusal_of({"--batch", "x"}), HasSubstr("--batch is 'x'"));
  EXPECT_THAT(refusal_of({"--layers", "-1"}), HasSubstr("--layers is -1"));
  EXPECT_THAT(refusal_of({"--dtype", "fp8"}),
              HasSubstr("--dtype is 'fp8'; it must be one of f32, bf16, f16"));
  EXPECT_THAT(refusal_of({"--layout", "zigzog"}), HasSubstr("did you mean zigzag?"));
  EXPECT_THAT(refusal_of({"--mesh", "tp"}), HasSubstr("--mesh is 'tp'"));
  EXPECT_THAT(refusal_of({"--mesh", "cp=2"}), HasSubstr("such as tp=8,pp=2,dp=4"));
  EXPECT_THAT(refusal_of({"--mesh", "tp=2,tp=4"}), HasSubstr("it gives tp twice"));
  EXPECT_THAT(
      refusal({"plan", "--machine", "h100", "--q-heads", "8", "--head-dim", "64", "--seq-len", "536870913"}),
      HasSubstr("--seq-len is 536870913; it must be 1 to 536870912"));
  EXPECT_THAT(refusal_of({"--plot", ""}), HasSubstr("--plot is empty"));
  EXPECT_THAT(refusal_of({"--params", "7e9", "--vocab", "100"}), HasSubstr("--vocab would change nothing"));
  EXPECT_THAT(refusal_of({"--mesh", "tp=0"}), HasSubstr("tp of --mesh is 0"));
  EXPECT_THAT(refusal_of({"--mesh", "tp=5"}),
              HasSubstr("--mesh tp=5 does not divide the 32 query heads; tp=4 does"));
  EXPECT_THAT(refusal_of({"--hidden", "4096"}), HasSubstr("--ffn is missing"));
  EXPECT_THAT(refusal_of({"--ffn", "4096"}), HasSubstr("--hidden is missing"));
  EXPECT_THAT(refusal_of({"--hidden", "4096", "--ffn", "4096"}), HasSubstr("--vocab is missing"));
  EXPECT_THAT(refusal_of({"--params", "7.5"}), HasSubstr("--params is 7.5"));
  EXPECT_THAT(refusal_of({"--params", "nan"}), HasSubstr("--params is nan"));
  EXPECT_THAT(refusal_of({"--training"}), HasSubstr("--hidden is missing"));
  EXPECT_THAT(refusal_of({"--zero", "1"}), HasSubstr("give --training"));
  EXPECT_THAT(refusal_of({"--params", "7e9", "--training", "--zero", "4"}), HasSubstr("--zero is '4'"));
}

}  // namespace
}  // namespace kvring::cli
