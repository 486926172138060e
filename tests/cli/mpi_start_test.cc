// Ranks that mpirun starts with different flags or files.
#include <gmock/gmock.h>

#include <chrono>

#include "run_mpi.h"

namespace kvring::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class MpiStart : public Mpi {
 protected:
  // Ranks 0 and 1 are given `usual`, rank 2 `odd`; all end with one message that says so.
  RunResult expect_refusal(int code, const std::string& what, const std::vector<std::string>& usual,
                           const std::vector<std::string>& odd) {
    RunResult result = run_command(mpirun({{"2", usual}, {"1", odd}}));
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(messages(result), 1) << result.err;
    return result;
  }
};

const std::vector<std::string> kJob = {"attend", "--input", "qkv.safetensors"};

std::vector<std::string> with(const std::vector<std::string>& more) {
  std::vector<std::string> job = kJob;
  job.insert(job.end(), more.begin(), more.end());
  return job;
}

// The digest of such a run was that of neither file.
TEST_F(MpiStart, FilesOfOneShapeWithOtherContentAreRefused) {
  generate();
  ASSERT_EQ(kvring({"generate", "--shape", "1,300,4,16", "--kv-shape", "1,300,2,16", "--seed", "1", "-o",
                    "other.safetensors"})
                .code,
            0);
  const RunResult result =
      expect_refusal(4, "ranks disagree on q: rank 0 has qkv.safetensors (f32 of shape (1, 300, 4, 16)", kJob,
                     {"attend", "--input", "other.safetensors"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("and rank 2 has other.safetensors"),
                                HasSubstr("all ranks must read one file, or copies of it")));
  std::filesystem::copy(file("qkv.safetensors"), file("copy.safetensors"));
  const RunResult copy = run_command(mpirun({{"1", kJob}, {"1", {"attend", "--input", "copy.safetensors"}}}));
  EXPECT_EQ(copy.code, 0) << copy.err;
}

// "[json.exception.type_error.305] ... [Internal]", or an output that was silently left out.
TEST_F(MpiStart, OutputsThatDifferAreRefused) {
  generate();
  const auto refused = [&](const char* what, const std::vector<std::string>& usual,
                           const std::vector<std::string>& odd) {
    expect_refusal(4, std::string("ranks disagree on ") + what, with(usual), with(odd));
  };
  refused("--output: rank 0 has 'p0.npy' and rank 2 has none; start all ranks with the same",
          {"--output", "p0.npy"}, {});
  refused("--output: rank 0 has none and rank 2 has 'p1.npy'", {}, {"--output", "p1.npy"});
  refused("--output: rank 0 has 'p0.npy' and rank 2 has 'p1.npy'", {"--output", "p0.npy"},
          {"--output", "p1.npy"});
  refused("--output: rank 0 has 'p.npy' and rank 2 has 'p.safetensors'", {"--output", "p.npy"},
          {"--output", "p.safetensors"});
  refused("--lse: rank 0 has 'l.npy' and rank 2 has none", {"--output", "p.npy", "--lse", "l.npy"},
          {"--output", "p.npy"});
  refused("--trace: rank 0 has none and rank 2 has 't.json'", {}, {"--trace", "t.json"});
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}

// Such a rank said nothing, and the others waited for it for ten seconds.
TEST_F(MpiStart, FlagsThatOnlyOneRankIsGivenAreRefusedByAll) {
  generate();
  const auto began = std::chrono::steady_clock::now();
  expect_refusal(2, "rank 2: attend has no flag --casual; did you mean --causal?", kJob, with({"--casual"}));
  expect_refusal(2, "rank 2: --tile is 'x'; it must be a whole number", kJob, with({"--tile", "x"}));
  expect_refusal(2, "rank 2: --ranks is 2, but the MPI world has 3 processes", kJob, with({"--ranks", "2"}));
  expect_refusal(2, "kvring: attend has no flag --casual", with({"--casual"}), kJob);
  const RunResult json = expect_refusal(2, "rank 2: no command was given", with({"--json"}), {});
  EXPECT_EQ(json.json()["error"], "InvalidArgument");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

TEST_F(MpiStart, GenerateIsForOneProcess) {
  const RunResult result =
      run_command(mpirun("2", {"generate", "--shape", "1,8,2,8", "-o", "twice.safetensors"}));
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 processes were started"));
  EXPECT_EQ(messages(result), 1) << result.err;
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(MpiStart, CommandsThatDifferAreRefused) {
  generate();
  expect_refusal(4, "ranks disagree on the command: rank 0 has attend and rank 2 has verify", kJob,
                 {"verify", "--input", "qkv.safetensors"});
  expect_refusal(4, "ranks disagree on --rows: rank 0 has '3' and rank 2 has '4'",
                 {"verify", "--input", "qkv.safetensors", "--rows", "3"},
                 {"verify", "--input", "qkv.safetensors", "--rows", "4"});
}

}  // namespace
}  // namespace kvring::cli
