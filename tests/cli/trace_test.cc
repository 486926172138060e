// attend --trace and kvring trace.
#include <gmock/gmock.h>

#include <cmath>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TraceCommand : public KvringTest {
 protected:
  // Attends on three ranks; a trace in run.json.
  RunResult attend(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"attend", "--input", "qkv.safetensors", "--causal", "--ranks", "3",
                                          "--tile", "16",      "--trace",         "run.json", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kvring(arguments);
  }
};

TEST_F(TraceCommand, SaysWhatTheReportSays) {
  generate();
  const RunResult run = attend();
  ASSERT_EQ(run.code, 0) << run.err;
  const auto trace = nlohmann::json::parse(read_file(file("run.json")));
  EXPECT_EQ(trace["otherData"]["problem"], run.json()["problem"]);
  EXPECT_EQ(trace["otherData"]["transport"], "inproc");
  const RunResult sums = kvring({"trace", "run.json", "--json"});
  ASSERT_EQ(sums.code, 0) << sums.err;
  const auto summary = sums.json();
  EXPECT_EQ(summary["ranks"], 3);
  EXPECT_LE(summary["wall_s"].get<double>(), run.json()["wall_s"].get<double>() * 2);
  for (int r = 0; r < 3; ++r) {
    const auto of_trace = summary["per_rank"][r], of_run = run.json()["per_rank"][r];
    for (const char* key : {"exposed_late_s", "exposed_transfer_s", "exposed_send_s"})
      EXPECT_NEAR(of_trace[key].get<double>(), of_run[key].get<double>(), 1e-7) << key;
    EXPECT_NEAR(of_trace["busy_s"].get<double>(), of_run["compute_s"].get<double>(), 1e-7);
    const double sum = of_trace["busy_s"].get<double>() + of_trace["exposed_late_s"].get<double>() +
                       of_trace["exposed_transfer_s"].get<double>() +
                       of_trace["exposed_send_s"].get<double>() + of_trace["idle_s"].get<double>();
    EXPECT_NEAR(sum, summary["wall_s"].get<double>(), 1e-7);
  }
}

TEST_F(TraceCommand, DrawsAPictureAndATable) {
  generate();
  ASSERT_EQ(attend({"--output", "out.npy"}).code, 0);
  const RunResult drawn = kvring({"trace", "run.json", "-o", "run.svg"});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_THAT(drawn.out, HasSubstr("% of it computing"));
  EXPECT_TRUE(read_file(file("run.svg")).ends_with("</svg>\n"));
  EXPECT_THAT(names(), ElementsAre("out.npy", "qkv.safetensors", "run.json", "run.svg"));
}

// The output was in place already when the trace did not fit.
TEST_F(TraceCommand, TraceThatDoesNotFitLeavesNoOutput) {
  ASSERT_EQ(kvring({"generate", "--shape", "1,300,4,16", "--value-dim", "1", "-o", "qkv.safetensors"}).code,
            0);
  const RunResult result =
      run_command({"/bin/sh", "-c",
                   "ulimit -f 16; exec " KVRING_PROGRAM
                   " attend --input qkv.safetensors --ranks 4 --tile 16 --heads-per-lap 1"
                   " --output out.npy --trace run.json"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("run.json"));
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}

TEST_F(TraceCommand, ChangesNoResult) {
  generate();
  const RunResult plain =
      kvring({"attend", "--input", "qkv.safetensors", "--causal", "--ranks", "3", "--tile", "16", "--json"});
  EXPECT_EQ(attend().json()["output_digest"], plain.json()["output_digest"]);
}

TEST_F(TraceCommand, PathsThatCannotWorkAreRefusedBeforeTheWork) {
  generate();
  const auto expect = [&](int code, const char* message, const std::vector<std::string>& arguments) {
    const RunResult result = kvring(arguments);
    EXPECT_EQ(result.code, code);
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  const std::vector<std::string> job = {"attend", "--input", "qkv.safetensors"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  expect(2, "does not exist; create it first", with({"--trace", "none/run.json"}));
  expect(2, "is an input as well", with({"--trace", "./qkv.safetensors"}));
  expect(2, "is the trace as well", with({"--trace", "out.npy", "--output", "out.npy"}));
  expect(2, "no trace: give the file", {"trace"});
  expect(2, "the trace itself", {"trace", "run.json", "-o", "./run.json"});
  expect(2, "--span goes with --output", {"trace", "run.json", "--span", "1"});
  expect(2, "--span is -1; it must be seconds", {"trace", "run.json", "-o", "run.svg", "--span", "-1"});
  expect(3, "none.json: cannot be opened", {"trace", "none.json"});
  expect(3, "qkv.safetensors: not a trace of kvring", {"trace", "qkv.safetensors", "-o", "run.svg"});
  write_file(file("run.json"), R"({"traceEvents": [], "otherData": {"schema_version": 7}})");
  expect(3, "run.json: not a trace of kvring: has schema_version 7; this kvring reads 1",
         {"trace", "run.json"});
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors", "run.json"));
  ASSERT_EQ(attend().code, 0);
  expect(2, "does not exist; create it first", {"trace", "run.json", "-o", "none/run.svg"});
}

}  // namespace
}  // namespace kvring::cli
