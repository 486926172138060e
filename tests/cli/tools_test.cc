// verify, generate, info, help and suggestions.
#include <gmock/gmock.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::HasSubstr;

class Tools : public KvringTest {};

TEST_F(Tools, VerifyPassesEveryDTypeAndMask) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    generate({"--dtype", dtype, "--seed", "3"});
    for (const std::vector<std::string>& mask :
         {std::vector<std::string>{"--causal"}, {"--window", "40,3"}, {"--causal", "--softcap", "5"}}) {
      std::vector<std::string> arguments = {"verify", "--input", "qkv.safetensors", "--ranks", "3",
                                            "--tile", "16",      "--json"};
      arguments.insert(arguments.end(), mask.begin(), mask.end());
      const RunResult result = kvring(arguments);
      ASSERT_EQ(result.code, 0) << result.out << result.err;
      EXPECT_EQ(result.json()["rows"], 1200);
      EXPECT_EQ(result.json()["passed"], true);
      for (const char* value : {"out", "lse"}) {
        for (const char* key : {"_max_abs_error", "_max_rel_error", "_bound", "_error_over_bound"})
          EXPECT_TRUE(result.json()[std::string(value) + key].is_number()) << value << key;
      }
    }
  }
}

TEST_F(Tools, VerifyTakesHardInput) {
  generate({"--kind", "adversarial"});
  const RunResult result = kvring({"verify", "--input", "qkv.safetensors", "--ranks", "4", "--tile", "16"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("verified: all within their bounds"));
}

TEST_F(Tools, VerifySamplesRowsBySeed) {
  generate();
  const auto verify = [&](const char* seed) {
    return kvring({"verify", "--input", "qkv.safetensors", "--rows", "7", "--seed", seed, "--ranks", "2",
                   "--json"})
        .json();
  };
  EXPECT_EQ(verify("1")["rows"], 7);
  EXPECT_EQ(verify("1")["out_max_abs_error"], verify("1")["out_max_abs_error"]);
  EXPECT_NE(verify("1")["out_max_abs_error"], verify("2")["out_max_abs_error"]);
}

TEST_F(Tools, GenerateIsReproducible) {
  const std::vector<std::string> arguments = {"generate", "--shape", "2,9,4,8", "--value-dim",
                                              "5",        "--dtype", "f16"};
  const auto make = [&](const char* seed, const char* name) {
    std::vector<std::string> all = arguments;
    for (const char* word : {"--seed", seed, "-o", name}) all.push_back(word);
    EXPECT_EQ(kvring(all).code, 0);
    return read_file(file(name));
  };
  EXPECT_EQ(make("1", "a.safetensors"), make("1", "b.safetensors"));
  EXPECT_NE(make("1", "a.safetensors"), make("2", "b.safetensors"));
  EXPECT_THAT(read_file(file("a.safetensors")), HasSubstr("[2,9,4,5]"));
}

TEST_F(Tools, InfoSaysWhatThereIs) {
  const nlohmann::json info = kvring({"info", "--json"}).json();
  for (const char* key : {"schema_version", "version", "isa", "supported_isas", "transports", "cores",
                          "memory_bytes", "page_bytes"})
    EXPECT_TRUE(info.contains(key)) << key;
  EXPECT_EQ(info["transports"][0]["name"], "inproc");
  EXPECT_THAT(kvring({"info"}).out, HasSubstr("transports"));
  EXPECT_THAT(kvring({"info", "--support"}).out, HasSubstr("causal"));
  EXPECT_FALSE(kvring({"info", "--support", "--json"}).json()["support"].empty());
  EXPECT_EQ(kvring({"--version"}).out, info["version"].get<std::string>() + "\n");
}

TEST_F(Tools, HelpBeginsWithExamples) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"--help"},
                                                  {"attend", "--help"},
                                                  {"verify", "--help"},
                                                  {"generate", "--help"},
                                                  {"info", "--help"},
                                                  {"trace", "--help"},
                                                  {"plan", "--help"},
                                                  {"simulate", "--help"},
                                                  {"bench", "--help"},
                                                  {"bench", "kernel", "--help"},
                                                  {"bench", "attend", "--help"}}) {
    const RunResult help = kvring(command);
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_LT(help.out.find("Examples:"), help.out.find("Usage:")) << help.out;
    EXPECT_NE(help.out.find("Usage:"), std::string::npos);
  }
}

TEST_F(Tools, TyposGetASuggestion) {
  const auto message = [&](const std::vector<std::string>& command) {
    const RunResult result = kvring(command);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(message({"atend"}), HasSubstr("did you mean attend?"));
  EXPECT_THAT(message({"attend", "--layot", "zigzag"}), HasSubstr("did you mean --layout?"));
  EXPECT_THAT(message({"attend", "--layot=zigzag"}), HasSubstr("did you mean --layout?"));
  EXPECT_THAT(message({"generate", "--shpae", "1"}), HasSubstr("did you mean --shape?"));
  EXPECT_THAT(message({"bench", "kernle"}), HasSubstr("did you mean kernel?"));
  EXPECT_THAT(message({"bench", "kernel", "--qick"}), HasSubstr("did you mean --quick?"));
  EXPECT_THAT(message({"--verson"}), HasSubstr("did you mean --version?"));
  generate();
  EXPECT_THAT(message({"attend", "--input", "qkv.safetensors", "--layout", "zigzog"}),
              HasSubstr("did you mean zigzag?"));
}

}  // namespace
}  // namespace kvring::cli
