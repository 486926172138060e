// Bad input gets one clear message, the right exit code, and no file.
#include <gmock/gmock.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct BadCase {
  std::string name;
  int code;
  std::string message;                 // a part of it
  std::vector<std::string> arguments;  // after attend --output out.safetensors
};

void PrintTo(const BadCase& bad, std::ostream* os) { *os << bad.name; }

class BadInput : public KvringTest, public testing::WithParamInterface<BadCase> {
 protected:
  void make_files() const {
    generate();
    const std::string good = read_file(file("qkv.safetensors"));
    write_file(file("truncated.safetensors"), good.substr(0, good.size() - 1));
    write_file(file("short.safetensors"), good.substr(0, 20));
    write_file(file("empty.safetensors"), "");
    write_file(file("lies.safetensors"), replaced(good, "[1,300,4,16]", "[1,301,4,16]"));
    write_file(file("wraps.safetensors"), replaced(good, "[1,300,4,16]", "[4294967296,4294967296,4,16]"));
    write_file(file("int.safetensors"), replaced(good, "F32", "I32"));
    write_file(file("text.txt"), "hello");
    for (const auto& [name, q, kv] : {std::tuple("heads", "1,8,3,8", "1,8,2,8"),
                                      {"dims", "1,8,2,8", "1,8,2,8"},
                                      {"other_dim", "1,8,2,4", "1,8,2,4"},
                                      {"other_len", "1,9,2,8", "1,9,2,8"},
                                      {"other_heads", "1,8,4,8", "1,8,4,8"},
                                      {"batch2", "2,8,2,8", "2,8,2,8"},
                                      {"huge_dim", "1,2,1,257", "1,2,1,257"}}) {
      const RunResult made =
          kvring({"generate", "--shape", q, "--kv-shape", kv, "-o", name + std::string(".safetensors")});
      ASSERT_EQ(made.code, 0) << made.err;
    }
    ASSERT_EQ(kvring({"generate", "--shape", "1,8,2,8", "--dtype", "bf16", "-o", "bf16.safetensors"}).code,
              0);
  }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    // The header's length is its first 8 bytes.
    const auto length = static_cast<unsigned char>(text[0]) + 256 * static_cast<unsigned char>(text[1]) +
                        static_cast<int>(to.size()) - static_cast<int>(from.size());
    text[0] = static_cast<char>(length & 0xff);
    text[1] = static_cast<char>(length >> 8);
    return text;
  }
};

TEST_P(BadInput, IsRefusedCleanly) {
  make_files();
  const std::vector<std::string> before = names();
  std::vector<std::string> command = {"attend", "--output", "out.safetensors"};
  command.insert(command.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const RunResult result = kvring(command);
  EXPECT_EQ(result.code, GetParam().code) << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(names(), before);
}

std::vector<std::string> with(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--input", "qkv.safetensors", "--ranks", "3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> files(const char* q, const char* k, const char* v) {
  const auto name = [](const char* stem) { return stem + std::string(".safetensors"); };
  return {"--q", name(q), "--k", name(k), "--v", name(v)};
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadInput,
    testing::Values(
        BadCase{
            "Missing", 3, "none.safetensors: cannot open", {"--input", "none.safetensors", "--ranks", "3"}},
        BadCase{
            "Truncated", 3, "truncated.safetensors", {"--input", "truncated.safetensors", "--ranks", "3"}},
        BadCase{"ShortHeader", 3, "short.safetensors", {"--input", "short.safetensors"}},
        BadCase{"Empty", 3, "empty.safetensors", {"--input", "empty.safetensors"}},
        BadCase{"LyingShape", 3, "lies.safetensors", {"--input", "lies.safetensors"}},
        BadCase{"WrappingShape", 3, "wraps.safetensors", {"--input", "wraps.safetensors"}},
        BadCase{"WrongDType", 3, "expected F32, BF16 or F16", {"--input", "int.safetensors"}},
        BadCase{"UnknownKind", 2, "must end in", {"--input", "text.txt"}},
        BadCase{"Directory", 3, "directory", {"--q", ".npy", "--k", "a.npy", "--v", "a.npy"}},
        BadCase{"SinksOfAnotherShape", 3, "sinks", with({"--sinks", "qkv.safetensors"})},
        BadCase{"SinksMissing", 3, "none.npy", with({"--sinks", "none.npy"})},
        BadCase{"ListFileMissing", 3, "none", with({"--cu-seqlens-q", "@none", "--cu-seqlens-kv", "@none"})}),
    [](const auto& bad) { return bad.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Shapes, BadInput,
    testing::Values(
        BadCase{"HeadsNotAMultiple", 2, "q_heads is 3 and kv_heads is 2", {"--input", "heads.safetensors"}},
        BadCase{"DimsDiffer", 2, "q has dim 4 and k has dim 8", files("other_dim", "dims", "dims")},
        BadCase{"LengthsDiffer", 2, "k has seqlen 8 and v has seqlen 9", files("dims", "dims", "other_len")},
        BadCase{"KvHeadsDiffer", 2, "k has heads 2 and v has heads 4", files("dims", "dims", "other_heads")},
        BadCase{"BatchesDiffer", 2, "q has batch 2 and k has batch 1", files("batch2", "dims", "dims")},
        BadCase{"DTypesDiffer", 2, "k is f32 and v is bf16", files("dims", "dims", "bf16")},
        BadCase{"DimTooLarge", 2, "head_dim is 257", {"--input", "huge_dim.safetensors"}}),
    [](const auto& bad) { return bad.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Flags, BadInput,
    testing::Values(
        BadCase{"NoInput", 2, "--input", {}},
        BadCase{"InputTwice", 2, "either --input", with({"--q", "q.npy"})},
        BadCase{"VMissing", 2, "--v is missing", {"--q", "q.npy", "--k", "k.npy"}},
        BadCase{"NanScale", 2, "softmax_scale is nan", with({"--softmax-scale", "nan"})},
        BadCase{"TextScale", 2, "--softmax-scale is 'x'", with({"--softmax-scale", "x"})},
        BadCase{"NegativeSoftcap", 2, "softcap is -1", with({"--softcap", "-1"})},
        BadCase{"WindowOfOne", 2, "LEFT,RIGHT", with({"--window", "5"})},
        BadCase{"WindowNonsense", 2, "--window", with({"--window", "a,b"})},
        BadCase{"WindowBelowMinusOne", 2, "window_left is -2", with({"--window", "-2,0"})},
        BadCase{"CuSeqlensAlone", 2, "without cu_seqlens_kv", with({"--cu-seqlens-q", "0,300"})},
        BadCase{"CuSeqlensFalls", 2, "falls from 200 to 100",
                with({"--cu-seqlens-q", "0,200,100,300", "--cu-seqlens-kv", "0,200,100,300"})},
        BadCase{"CuSeqlensEndsEarly", 2, "it must end at q_len, which is 300",
                with({"--cu-seqlens-q", "0,299", "--cu-seqlens-kv", "0,300"})},
        BadCase{"NoRanks", 2, "--ranks is 0", {"--input", "qkv.safetensors", "--ranks", "0"}},
        BadCase{"TooManyRanks", 2, "1 to 1024", {"--input", "qkv.safetensors", "--ranks", "1025"}},
        BadCase{"RanksInWords", 2, "--ranks is 'two'", {"--input", "qkv.safetensors", "--ranks", "two"}},
        BadCase{"RanksTwice", 2, "--ranks", with({"--ranks", "4"})},
        BadCase{"StripeOfAnotherLayout", 2, "stripe is 512", with({"--stripe", "512"})},
        BadCase{"StripeInsideTile", 2, "not a multiple", with({"--layout", "striped", "--stripe", "100"})},
        BadCase{"NoSuchLayout", 2, "contiguous, zigzag, striped", with({"--layout", "round"})},
        BadCase{"HeadsNotShareable", 2, "do not divide over 3 ranks; use 2", with({"--schedule", "ulysses"})},
        BadCase{"NoSuchSchedule", 2, "does not exist", with({"--schedule", "x"})},
        BadCase{"TileOfZero", 2, "tile is 0", with({"--tile", "0"})},
        BadCase{"TimeoutOfZero", 2, "--timeout is 0", with({"--timeout", "0"})},
        BadCase{"TimeoutTooShort", 2, "--timeout is 0.001; it must be seconds, from 0.1 to 1000000",
                with({"--timeout", "0.001"})},
        BadCase{"HeadsPerLapThatAreNotThere", 2, "--heads-per-lap is 99; there are 2 KV heads",
                with({"--heads-per-lap", "99"})},
        BadCase{"MpiProgressWithoutMpi", 2, "--mpi-progress goes with transport mpi",
                with({"--mpi-progress", "inline"})},
        BadCase{"TimeoutNan", 2, "--timeout is nan", with({"--timeout", "nan"})},
        BadCase{"BytesWithoutUnit", 2, "512MiB", with({"--rank-memory", "512Mib"})},
        BadCase{"NegativeThreads", 2, "--threads is -1", with({"--threads", "-1"})},
        BadCase{"LseInSafetensors", 2, "holds lse already", with({"--lse", "lse.npy"})},
        BadCase{"OutputTwice", 2, "--output", with({"--output", "x.npy"})},
        BadCase{"WouldNotFit", 6, "would hold", with({"--rank-memory", "10KB"})},
        BadCase{"MoreRanksWouldFit",
                6,
                "ranks would fit",
                {"--input", "qkv.safetensors", "--ranks", "1", "--tile", "16", "--rank-memory", "200KiB"}}),
    [](const auto& bad) { return bad.param.name; });

class BadOutput : public KvringTest {
 protected:
  RunResult attend_to(const std::vector<std::string>& outputs) const {
    std::vector<std::string> command = {"attend", "--input", "qkv.safetensors", "--ranks", "3",
                                        "--tile", "16"};
    command.insert(command.end(), outputs.begin(), outputs.end());
    return kvring(command);
  }
};

TEST_F(BadOutput, IsRefusedBeforeTheWork) {
  generate();
  EXPECT_EQ(attend_to({"--output", "none/out.safetensors"}).code, 2);
  EXPECT_EQ(attend_to({"--output", "out"}).code, 2);
  EXPECT_EQ(attend_to({"--output", "out.npy", "--lse", "lse.safetensors"}).code, 2);
  EXPECT_EQ(attend_to({"--output", "out.npy", "--lse", "out.npy"}).code, 2);
  EXPECT_EQ(attend_to({"--lse", "lse.npy"}).code, 2);
  EXPECT_EQ(attend_to({"--output", "out.npy", "--lse", "none/lse.npy"}).code, 2);
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}

// The limit on file size stands for a full disk: it makes the same calls fail.
TEST_F(BadOutput, FullDiskLeavesNothing) {
  generate();
  const RunResult result =
      run_command({"/bin/sh", "-c",
                   "ulimit -f 16; exec " KVRING_PROGRAM
                   " attend --input qkv.safetensors --ranks 3 --tile 16 --output out.safetensors"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}

TEST_F(BadOutput, KeepsTheOldFileWhenTheNewOneFails) {
  generate();
  write_file(file("out.safetensors"), "old");
  EXPECT_EQ(attend_to({"--output", "out.safetensors", "--rank-memory", "10KB"}).code, 6);
  EXPECT_EQ(read_file(file("out.safetensors")), "old");
  EXPECT_THAT(names(), ElementsAre("out.safetensors", "qkv.safetensors"));
}

TEST_F(BadOutput, ErrorIsJsonWhereJsonIsWanted) {
  const RunResult result = kvring({"attend", "--input", "none.safetensors", "--json"});
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.json()["error"], "InputFile");
  EXPECT_EQ(result.json()["exit_code"], 3);
  EXPECT_THAT(result.err, HasSubstr("none.safetensors"));
}

TEST_F(BadOutput, StandardOutputThatIsFullIsAnError) {
  const RunResult result = run_command({"/bin/sh", "-c", "exec " KVRING_PROGRAM " info > /dev/full"});
  EXPECT_EQ(result.code, 1);
}

TEST_F(BadOutput, GenerateRefuses) {
  const auto code = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"generate"};
    command.insert(command.end(), more.begin(), more.end());
    return kvring(command).code;
  };
  EXPECT_EQ(code({"-o", "x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,8"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2", "-o", "x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,0", "-o", "x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,8", "--kv-shape", "2,8,2,8", "-o", "x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,8", "-o", "x.npy"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,8", "-o", "none/x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "1,8,2,8", "--dtype", "f64", "-o", "x.safetensors"}), 2);
  EXPECT_EQ(code({"--shape", "4294967296,4294967296,2,8", "-o", "x.safetensors"}), 2);
  EXPECT_THAT(names(), ElementsAre());
}

}  // namespace
}  // namespace kvring::cli
