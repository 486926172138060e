// kvring simulate.
#include <gmock/gmock.h>

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
}

}  // namespace
}  // namespace kvring::cli
