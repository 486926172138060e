#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cli/cores.h"
#include "cli/exit_code.h"
#include "cli/message.h"
#include "cli/team.h"
#include "cli/temporaries.h"
#include "kvring/mpi.h"

namespace kvring::cli {
namespace {

bool is_initialised() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
}

void initialise() {
  if (is_initialised()) return;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_FUNNELED)
    throw TransportError("this MPI library allows no threads (MPI_THREAD_FUNNELED); use transport inproc");
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// How many ranks of this machine may run on just the cores that this one may: all of them where nothing is
// bound, 1 where mpirun gave each rank cores of its own.
int ranks_on_same_cores(const cpu_set_t& cores) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int ranks = 0;
  MPI_Comm_size(node, &ranks);
  std::vector<cpu_set_t> all(static_cast<std::size_t>(ranks));
  MPI_Allgather(&cores, sizeof cores, MPI_BYTE, all.data(), sizeof cores, MPI_BYTE, node);
  MPI_Comm_free(&node);
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [&](const cpu_set_t& other) { return CPU_EQUAL(&cores, &other) != 0; }));
}

// An Outcome as MPI carries it. Longer messages lose their end.
struct PackedOutcome {
  int failed;
  int code;
  std::array<char, 2040> message;
};

PackedOutcome pack(const Outcome& outcome) {
  PackedOutcome packed{};
  packed.failed = outcome.failed;
  packed.code = static_cast<int>(outcome.code);
  std::strncpy(packed.message.data(), outcome.message.c_str(), packed.message.size() - 1);
  return packed;
}

class MpiTeam final : public Team {
 public:
  MpiTeam(const TeamSpec& spec, const Launch& launch)
      : timeout_s_(spec.timeout_s), ranks_(world_size()), rank_(world_rank()) {
    if (launch.size != 0 && launch.size != ranks_)
      throw InvalidArgument(
          fmt::format("{} processes were started ({}), but the MPI library of this kvring sees {}: the "
                      "launcher belongs to "
                      "another MPI; use that of {}",
                      launch.size, launch.by, ranks_, mpi_library_version()));
    if (spec.ranks && *spec.ranks != ranks_)
      throw InvalidArgument(
          fmt::format("--ranks is {}, but the MPI world has {} processes; use --ranks {}, or none",
                      *spec.ranks, ranks_, ranks_));
    const cpu_set_t cores = allowed_cores();
    cores_per_rank_ = std::max(1, CPU_COUNT(&cores) / ranks_on_same_cores(cores));
    transport_ = make_mpi_transport(MPI_COMM_WORLD, timeout_s_);
  }

  int ranks() const noexcept override { return ranks_; }
  const char* transport() const noexcept override { return "mpi"; }
  bool has_rank_0() const noexcept override { return rank_ == 0; }
  int cores_per_rank() const noexcept override { return cores_per_rank_; }

  void run(const TeamWork& work) override {
    const Outcome mine = run_guarded(*transport_, [&] {
      work.prepare();
      work.run(*transport_);
    });
    work.release(*transport_);
    throw_root_cause(exchange(mine));
  }

 private:
  // Tells everyone how everyone ended. A failed transport carries nothing any more, so this goes past it. A
  // rank that does not come within the timeout cannot be told: then only MPI_Abort ends it.
  std::vector<Outcome> exchange(const Outcome& mine) {
    const PackedOutcome sent = pack(mine);
    std::vector<PackedOutcome> all(static_cast<std::size_t>(ranks_));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&sent, sizeof sent, MPI_BYTE, all.data(), sizeof sent, MPI_BYTE, MPI_COMM_WORLD, &request);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s_);
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) break;
      if (std::chrono::steady_clock::now() > give_up) abort(mine);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<Outcome> outcomes;
    for (const PackedOutcome& packed : all)
      outcomes.push_back({packed.failed != 0, static_cast<ErrorCode>(packed.code), packed.message.data()});
    return outcomes;
  }

  [[noreturn]] static void abort(const Outcome& mine) {
    const ErrorCode code = mine.failed ? mine.code : ErrorCode::kTimeout;
    message("kvring: {} [{}]\n", mine.failed ? mine.message : "the other ranks did not end",
            error_code_name(code));
    TemporaryFiles::remove_all();
    MPI_Abort(MPI_COMM_WORLD, exit_code(code));
    std::_Exit(exit_code(code));  // not reached: MPI_Abort does not return
  }

  double timeout_s_;
  int ranks_;
  int rank_;
  int cores_per_rank_ = 1;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<Team> make_mpi_team(const TeamSpec& spec, const Launch& launch) {
  initialise();
  return std::make_unique<MpiTeam>(spec, launch);
}

void leave_together(int code) noexcept {
  if (!is_initialised()) {
    if (code == 0 || !detect_launch().launched) return;
    MPI_Init(nullptr, nullptr);
  }
  MPI_Finalize();
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  // The first line or item says who and which; the rest is how it was built.
  std::string version(text.data(), static_cast<std::size_t>(length));
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  std::replace(version.begin(), version.end(), '\t', ' ');
  return version;
}

}  // namespace kvring::cli
