// bench kernel and bench attend. Nothing here depends on how fast anything is.
#include <gmock/gmock.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class Bench : public KvringTest {
 protected:
  json bench(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "bench");
    arguments.push_back("--json");
    const RunResult result = kvring(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.json();
  }
};

// Where a machine may lack something the value is null.
void expect_number_or_null(const json& object, const char* key) {
  ASSERT_TRUE(object.contains(key)) << key;
  EXPECT_TRUE(object[key].is_null() || object[key].get<double>() > 0) << key;
}

void expect_positive(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    ASSERT_TRUE(object.contains(key)) << key;
    EXPECT_GT(object[key].get<double>(), 0) << key;
  }
}

void expect_row(const json& row) {
  for (const char* key : {"case", "dtype", "mask", "accumulation", "peak"}) EXPECT_TRUE(row[key].is_string());
  expect_positive(row, {"head_dim", "value_dim", "n", "queries", "q_heads", "kv_heads", "threads", "repeats",
                        "seconds", "cpu_seconds", "gflops", "fraction_of_peak", "best_fraction"});
  expect_positive(row["peak_gflops"], {"before", "after"});
  for (const char* key : {"fraction_of_amx_peak", "gbytes_per_s", "fraction_of_read", "target"})
    expect_number_or_null(row, key);
  EXPECT_EQ(row["reached"].is_boolean(), !row["target"].is_null());
  const bool decode = row["mask"].get<std::string>().starts_with("decode");
  for (const char* key : {"gbytes_per_s", "read_gbytes_per_s", "fraction_of_read"})
    EXPECT_EQ(row[key].is_null(), !decode) << key;
  for (const json& mark : row["marks"]) EXPECT_TRUE(mark == "throttled" || mark == "shared");
}

TEST_F(Bench, KernelJsonHasItsSchema) {
  const json result = bench({"kernel", "--quick"});
  EXPECT_EQ(result["schema_version"], 1);
  EXPECT_TRUE(result["version"].is_string());
  for (const char* key : {"cpu", "isa", "compiler"}) EXPECT_TRUE(result["machine"][key].is_string()) << key;
  expect_positive(result["machine"], {"cores", "memory_bytes"});
  expect_positive(result["peak"], {"f32_fma_gflops", "read_gbytes_per_s"});
  expect_number_or_null(result["peak"], "bf16_dot_gflops");
  expect_number_or_null(result["peak"], "bf16_amx_gflops");
  ASSERT_EQ(result["rows"].size(), 6);
  for (const json& row : result["rows"]) expect_row(row);
  ASSERT_EQ(result["ratios"].size(), 3);
  for (const json& ratio : result["ratios"]) {
    for (const char* key : {"case", "against", "what"}) EXPECT_TRUE(ratio[key].is_string()) << key;
    expect_positive(ratio, {"ratio"});
    EXPECT_TRUE(ratio.contains("at_least") != ratio.contains("at_most"));
    EXPECT_TRUE(ratio["reached"].is_boolean());
  }
}

TEST_F(Bench, KernelMeasuresTheCasesThatAreNamed) {
  const json result = bench({"kernel", "--quick", "--repeat", "2", "--case", "bf16-window40-d24v16-n300-gqa3",
                             "--case", "f16-causal-d8-n70-t2"});
  ASSERT_EQ(result["rows"].size(), 2);
  const json& row = result["rows"][0];
  EXPECT_EQ(row["case"], "bf16-window40-d24v16-n300-gqa3");
  EXPECT_EQ(row["dtype"], "bf16");
  EXPECT_EQ(row["mask"], "window40");
  EXPECT_EQ(row["head_dim"], 24);
  EXPECT_EQ(row["value_dim"], 16);
  EXPECT_EQ(row["n"], 300);
  EXPECT_EQ(row["q_heads"], 3);
  EXPECT_EQ(row["repeats"], 2);
  EXPECT_EQ(result["rows"][1]["threads"], 2);
  EXPECT_EQ(result["ratios"][0]["against"], "bf16-window40-d24v16-n300");
  EXPECT_EQ(result["ratios"][1]["against"], "f16-causal-d8-n70");
}

TEST_F(Bench, KernelTableNamesMachineAndCases) {
  const RunResult result = kvring({"bench", "kernel", "--quick", "--case", "f32-full-d16-n100-online"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, AllOf(HasSubstr("one thread: f32 FMA"), HasSubstr("\nf32-full-d16-n100-online "),
                                HasSubstr("against f32-full-d16-n100: time of reproducible / online")));
}

TEST_F(Bench, AttendJsonHasItsSchema) {
  const json result =
      bench({"attend", "--shape", "2,300,4,16", "--kv-shape", "2,400,2,16", "--value-dim", "8", "--dtype",
             "bf16", "--causal", "--tile", "32", "--ranks", "3", "--threads", "1", "--repeat", "2"});
  EXPECT_EQ(result["schema_version"], 1);
  EXPECT_EQ(result["problem"]["kv_len"], 400);
  EXPECT_EQ(result["problem"]["value_dim"], 8);
  EXPECT_EQ(result["problem"]["kv_dtype"], "bf16");
  EXPECT_EQ(result["ranks"], 3);
  EXPECT_EQ(result["transport"], "inproc");
  EXPECT_EQ(result["bits_invariant"], true);
  EXPECT_EQ(result["threads_in_all"], 3);
  EXPECT_EQ(result["per_rank"].size(), 3);
  for (const json& measured : {result, result["one_rank"]}) {
    expect_positive(measured, {"threads_in_all", "wall_s", "cpu_s", "gflops", "fraction_of_peak"});
    expect_positive(measured["peak_gflops"], {"before", "after"});
    EXPECT_TRUE(measured["marks"].is_array());
  }
  expect_positive(result, {"compute_s", "bytes_sent", "time_over_one_rank"});
  EXPECT_TRUE(result["exposed_wait_s"].is_number());
}

TEST_F(Bench, AttendOfOneRankHasNothingToCompareWith) {
  const json result = bench({"attend", "--shape", "1,100,2,8", "--repeat", "1"});
  EXPECT_TRUE(result["one_rank"].is_null());
  EXPECT_TRUE(result["time_over_one_rank"].is_null());
  const RunResult text = kvring({"bench", "attend", "--shape", "1,100,2,8", "--ranks", "2", "--repeat", "1"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("2 ranks "), HasSubstr("\n1 rank "), HasSubstr("of the time of one rank")));
}

TEST_F(Bench, BadInputIsRefusedCleanly) {
  using Arguments = std::vector<std::string>;
  for (const auto& [arguments, fault] :
       {std::pair(Arguments{"kernel", "--case", "f32-full-d64"}, "it ends before -n"),
        {Arguments{"kernel", "--repeat", "0"}, "--repeat is 0"},
        {Arguments{"kernel", "--threads", "many"}, "--threads is 'many'"},
        {Arguments{"kernel", "f32-full-d64-n8"}, "takes no argument"},
        {Arguments{"attend"}, "--shape is missing"},
        {Arguments{"attend", "--shape", "1,2,3"}, "--shape is '1,2,3'"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--kv-shape", "2,8,2,8"},
         "batch 1 and --kv-shape has batch 2"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--kv-shape", "1,8,2,4"},
         "dim 8 and --kv-shape has dim 4"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--dtype", "f64"}, "--dtype is 'f64'"},
        {Arguments{"attend", "--shape", "1,8,3,8", "--kv-shape", "1,8,2,8"}, "multiple of kv_heads"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--ranks", "1025"}, "--ranks is 1025"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--ranks", "99999999999"}, "--ranks is 99999999999"},
        {Arguments{"attend", "--shape", "1,8,2,8", "--transport", "mpi"}, "has no flag --transport"}}) {
    Arguments command = {"bench"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const RunResult result = kvring(command);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(fault));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(kvring({"bench"}).code, 2);
}

}  // namespace
}  // namespace kvring::cli
