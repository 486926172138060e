// The program under mpirun.
#include <gmock/gmock.h>
#include <signal.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Mpi : public KvringTest {
 protected:
  static std::vector<std::string> mpirun(const char* ranks, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {KVRING_MPIRUN};
#ifdef KVRING_OPEN_MPI
    for (const char* word :
         {"--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"})
      command.push_back(word);
#endif
    for (const char* word : {"-n", ranks, KVRING_PROGRAM}) command.push_back(word);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }

  // How often the program itself spoke: mpirun adds its own words when a rank fails.
  static int messages(const RunResult& result) {
    int count = 0;
    for (std::size_t at = result.err.find("kvring: "); at != std::string::npos;
         at = result.err.find("kvring: ", at + 1))
      count += at == 0 || result.err[at - 1] == '\n';
    return count;
  }
};

TEST_F(Mpi, WritesTheSameFileAsOneProcess) {
  generate({"--dtype", "f16"});
  const std::vector<std::string> job = {"attend", "--input", "qkv.safetensors", "--causal",
                                        "--tile", "16",      "--json"};
  std::vector<std::string> alone = job;
  for (const char* word : {"--output", "one.safetensors"}) alone.push_back(word);
  ASSERT_EQ(kvring(alone).code, 0);
  std::vector<std::string> ring = job;
  for (const char* word : {"--output", "ring.safetensors", "--ranks", "4"}) ring.push_back(word);
  const RunResult result = run_command(mpirun("4", ring));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["transport"], "mpi");
  EXPECT_EQ(result.json()["ranks"], 4);
  EXPECT_EQ(result.json()["per_rank"].size(), 4u);
  EXPECT_EQ(read_file(file("ring.safetensors")), read_file(file("one.safetensors")));
  EXPECT_THAT(names(), ElementsAre("one.safetensors", "qkv.safetensors", "ring.safetensors"));
}

TEST_F(Mpi, VerifiesAndPrintsOnce) {
  generate();
  const RunResult result = run_command(mpirun(
      "3", {"verify", "--input", "qkv.safetensors", "--window", "50,0", "--tile", "16", "--rows", "20"}));
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("verified"), result.out.rfind("verified"));
  EXPECT_THAT(result.out, HasSubstr("verified"));
}

TEST_F(Mpi, OneMessageAndOneCodeForEveryFault) {
  generate();
  const auto expect = [&](int code, const char* message, const std::vector<std::string>& arguments) {
    const RunResult result = run_command(mpirun("3", arguments));
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(messages(result), 1) << result.err;
  };
  expect(2, "use --ranks 3", {"attend", "--input", "qkv.safetensors", "--ranks", "2"});
  expect(2, "did you mean --layout?", {"attend", "--layot", "zigzag"});
  expect(2, "3 processes were started", {"attend", "--input", "qkv.safetensors", "--transport", "inproc"});
  expect(2, "does not exist; create it first",
         {"attend", "--input", "qkv.safetensors", "--output", "none/out.safetensors"});
  expect(3, "none.safetensors", {"attend", "--input", "none.safetensors"});
  expect(6, "would hold",
         {"attend", "--input", "qkv.safetensors", "--rank-memory", "1KB", "--output", "x.npy"});
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}

TEST_F(Mpi, WithoutMpirunTheWorldIsOneRank) {
  generate();
  const RunResult result = kvring({"attend", "--input", "qkv.safetensors", "--transport", "mpi", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["transport"], "mpi");
  EXPECT_EQ(kvring({"attend", "--input", "qkv.safetensors", "--transport", "mpi", "--ranks", "2"}).code, 2);
}

#ifdef KVRING_OTHER_MPIRUN
// Each process would take itself for the only one and all would write the same file.
TEST_F(Mpi, LauncherOfAnotherMpiIsRefused) {
  generate();
  const RunResult result = run_command({KVRING_OTHER_MPIRUN, "-n", "2", KVRING_PROGRAM, "attend", "--input",
                                        "qkv.safetensors", "--output", "x.npy"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the launcher belongs to another MPI"));
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors"));
}
#endif

}  // namespace
}  // namespace kvring::cli
