// The program under mpirun.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>

#include "run_mpi.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST_F(Mpi, OneTraceOfAllProcesses) {
  generate();
  const RunResult run = run_command(mpirun("3", {"attend", "--input", "qkv.safetensors", "--tile", "16",
                                                 "--heads-per-lap", "1", "--trace", "run.json", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(names(), ElementsAre("qkv.safetensors", "run.json"));
  const auto trace = nlohmann::json::parse(read_file(file("run.json")));
  EXPECT_EQ(trace["otherData"]["transport"], "mpi");
  std::map<std::string, int> count;
  for (const auto& event : trace["traceEvents"]) ++count[event["ph"]];
  EXPECT_EQ(count["s"], 3 * 2 * 2);  // ranks, hops, laps
  EXPECT_EQ(count["f"], count["s"]);
  const RunResult sums = kvring({"trace", "run.json", "--json", "-o", "run.svg"});
  ASSERT_EQ(sums.code, 0) << sums.err;
  for (int r = 0; r < 3; ++r)
    EXPECT_NEAR(sums.json()["per_rank"][r]["busy_s"].get<double>(),
                run.json()["per_rank"][r]["compute_s"].get<double>(), 1e-7);
}

TEST_F(Mpi, TraceThatCannotBeWrittenIsRefusedByAll) {
  generate();
  const RunResult result =
      run_command(mpirun("2", {"attend", "--input", "qkv.safetensors", "--trace", "none/run.json"}));
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("does not exist; create it first"));
  EXPECT_EQ(messages(result), 1) << result.err;
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

// A rank that dies or stops in the middle of the work.
class MpiFault : public Mpi {
 protected:
  // Four ranks on a problem of some seconds; each leaves its process number in pid.RANK.
  pid_t start_job() {
    EXPECT_EQ(kvring({"generate", "--shape", "1,32768,2,64", "-o", "long.safetensors"}).code, 0);
    write_file(
        file("rank.sh"),
        "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\necho $$ > pid.tmp.$rank\nmv pid.tmp.$rank pid.$rank\n"
        "exec \"$@\"\n");
    std::vector<std::string> command =
        mpirun("4", {"attend", "--input", "long.safetensors", "--threads", "1", "--timeout", "2", "--record",
                     "records", "--output", "out.safetensors", "--json"});
    command.insert(std::find(command.begin(), command.end(), KVRING_PROGRAM), {"/bin/sh", file("rank.sh")});
#ifdef KVRING_OPEN_MPI
    // As between hosts. Where one rank reads another's memory itself, Open MPI ends it when the other has
    // died.
    *std::find(command.begin(), command.end(), "self,vader") = "self,tcp";
    command.insert(command.begin() + 1, {"--mca", "btl_tcp_if_include", "lo"});
    // When a rank has died, mpirun asks the others to end and kills them a second later: too early for some
    // on a busy machine.
    command.insert(command.begin() + 1, {"--mca", "odls_base_sigkill_timeout", "4"});
#endif
    return start(command);
  }

  // Once rank 2 is at work: its output has a temporary file by then.
  void hit_rank_2(int signal) {
    const auto at_work = [&] {
      for (const std::string& name : names())
        if (name.starts_with(".out.safetensors") || name.starts_with("out.safetensors")) return true;
      return false;
    };
    for (int tries = 0; tries < 3000 && !at_work(); ++tries) ::usleep(10'000);
    ASSERT_TRUE(at_work());
    ::usleep(1'000'000);
    rank_2_ = std::stoi(read_file(file("pid.2")));
    ASSERT_EQ(::kill(rank_2_, signal), 0);
  }

  // Those of the other ranks that named rank 2; nobody may name another one.
  std::vector<int> who_blamed_rank_2(const RunResult& result) const {
    std::vector<int> ranks;
    for (const int rank : {0, 1, 3}) {
      const std::string gives_up = "rank " + std::to_string(rank) + " gives up: rank ";
      const std::size_t at = result.err.find(gives_up);
      if (at == std::string::npos) continue;
      EXPECT_EQ(result.err.substr(at + gives_up.size(), 17), "2 does not answer") << result.err;
      ranks.push_back(rank);
    }
    return ranks;
  }

  void expect_clean_end(const RunResult& result) const {
    EXPECT_NE(result.code, 0);
    for (const std::string& name : names())
      EXPECT_EQ(name.find("out.safetensors"), std::string::npos) << name;
    for (int tries = 0; tries < 500 && ::kill(rank_2_, 0) == 0; ++tries) ::usleep(10'000);
    EXPECT_NE(::kill(rank_2_, 0), 0) << "rank 2 is still there";
  }

 private:
  pid_t rank_2_ = 0;
};

TEST_F(MpiFault, StoppedRankIsNamedByAllOthers) {
  const pid_t job = start_job();
  hit_rank_2(SIGSTOP);
  const RunResult result = wait(job);
  expect_clean_end(result);
  EXPECT_THAT(who_blamed_rank_2(result), ElementsAre(0, 1, 3)) << result.err;
  ASSERT_THAT(result.out, HasSubstr("{")) << "no object for --json: " << result.err;
  EXPECT_EQ(result.json()["error"], "Transport");
  EXPECT_EQ(result.json()["exit_code"], 4);
  EXPECT_THAT(result.json()["message"].get<std::string>(),
              HasSubstr("rank 0 gives up: rank 2 does not answer"));
  const RunResult diagnosis = kvring({"diagnose", "--json", file("records/rank-0.json"),
                                      file("records/rank-1.json"), file("records/rank-3.json")});
  EXPECT_EQ(diagnosis.code, 0) << diagnosis.err;
  EXPECT_EQ(diagnosis.json()["culprit"], 2) << diagnosis.out;
  EXPECT_TRUE(diagnosis.json()["step"].is_number()) << diagnosis.out;
}

#ifdef KVRING_OPEN_MPI  // MPICH's launcher kills the others without asking
TEST_F(MpiFault, KilledRankIsNamedByAllOthers) {
  const pid_t job = start_job();
  hit_rank_2(SIGKILL);
  const RunResult result = wait(job);
  expect_clean_end(result);
  EXPECT_THAT(who_blamed_rank_2(result), ElementsAre(0, 1, 3)) << result.err;
  ASSERT_THAT(result.out, HasSubstr("{")) << "no object for --json: " << result.err;
  EXPECT_EQ(result.json()["error"], "Transport");
}
#endif

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
