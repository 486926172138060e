#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "cli/cores.h"
#include "cli/error_report.h"
#include "cli/exit_code.h"
#include "cli/give_up.h"
#include "cli/message.h"
#include "cli/signals.h"
#include "cli/team.h"
#include "kvring/mpi.h"

namespace kvring::cli {
namespace {

bool is_initialised() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  return initialised != 0;
}

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
// Open MPI 4 shows its longer messages through the launcher and waits for an answer. When a peer has died,
// the launcher is busy ending the job and does not answer: every call of MPI, and so every rank, would stay
// in there until it is killed. What such a message says the ranks say themselves.
int show_nothing(const char*, const char*, bool, ...) { return 0; }

void keep_mpi_from_waiting_for_the_launcher() {
  using ShowHelp = int (*)(const char* file, const char* topic, bool header, ...);
  if (void* symbol = ::dlsym(RTLD_DEFAULT, "opal_show_help")) *static_cast<ShowHelp*>(symbol) = show_nothing;
}
#else
void keep_mpi_from_waiting_for_the_launcher() {}
#endif

void initialise() {
  if (is_initialised()) return;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_FUNNELED)
    throw TransportError("this MPI library allows no threads (MPI_THREAD_FUNNELED); use transport inproc");
  keep_mpi_from_waiting_for_the_launcher();
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

std::vector<Outcome> unpack(const std::vector<PackedOutcome>& all) {
  std::vector<Outcome> outcomes;
  for (const PackedOutcome& packed : all)
    outcomes.push_back({packed.failed != 0, static_cast<ErrorCode>(packed.code), packed.message.data()});
  return outcomes;
}

bool roll_was_called = false;

// The first that every process does with the others, whether it makes a team or was refused before it had
// one: who makes a team would wait for ever for one that has left.
std::vector<Outcome> call_the_roll(const Outcome& mine) {
  roll_was_called = true;
  const PackedOutcome sent = pack(mine);
  std::vector<PackedOutcome> all(static_cast<std::size_t>(world_size()));
  MPI_Allgather(&sent, sizeof sent, MPI_BYTE, all.data(), sizeof sent, MPI_BYTE, MPI_COMM_WORLD);
  return unpack(all);
}

// MPI does not start where a process of the job never calls it, is stopped, or is not reached, and says
// nothing. Many hosts take their time: at least half a minute.
GiveUp unless_mpi_starts(const Launch& launch, double patience_s, int code) {
  constexpr double kLeastPatience = 30;
  const double patience = std::max(kLeastPatience, patience_s);
  return GiveUp(std::chrono::duration<double>(patience), code, [=] {
    message(
        "kvring: rank {} of {} ({}) gives up: MPI has not started after {:.0f} s; a process of this job does "
        "not call MPI, is stopped, or is not reached [{}]\n",
        launch.rank, launch.size, launch.by, patience, error_code_name(ErrorCode::kTimeout));
  });
}

void say_nothing() {}

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
    const std::vector<Outcome> starts = call_the_roll({});
    for (std::size_t r = 0; r < starts.size(); ++r)
      if (starts[r].failed) throw_error(starts[r].code, fmt::format("rank {}: {}", r, starts[r].message));
    const cpu_set_t cores = allowed_cores();
    cores_per_rank_ = std::max(1, CPU_COUNT(&cores) / ranks_on_same_cores(cores));
    transport_ =
        make_mpi_transport(MPI_COMM_WORLD, timeout_s_,
                           spec.inline_progress.value_or(false) ? MpiProgress::kInline : MpiProgress::kAuto);
  }

  int ranks() const noexcept override { return ranks_; }
  const char* transport() const noexcept override { return "mpi"; }
  bool has_rank_0() const noexcept override { return rank_ == 0; }
  int cores_per_rank() const noexcept override { return cores_per_rank_; }

  void run(const TeamWork& work) override {
    TeamWork watched = work;
    watched.failed = [&](Transport& transport, const std::string& reason) {
      say_who_is_gone();
      if (work.failed) work.failed(transport, reason);
    };
    auto interrupts = std::make_unique<Interrupts>([&](int signal) {
      const std::string reason = "ended by " + signal_text(signal);
      transport_->fail(reason);
      // Not only when the work has come to its end: mpirun may leave a second between asking and killing.
      watched.failed(*transport_, reason);
    });
    const Outcome mine = run_guarded(*transport_, watched, work.prepare);
    work.release(*transport_);
    const std::optional<std::vector<Outcome>> outcomes = mine.failed ? std::nullopt : exchange(mine);
    if (transport_->verdict().silent_s > 0) say_who_is_gone();
    const int signal = interrupts->signal();
    interrupts.reset();
    if (signal != 0) {
      const std::string text = "ended by " + signal_text(signal);
      if (rank_ == 0) message("kvring: {}\n", text);
      // mpirun sends one when a rank has died.
      print_json_where_heard(ErrorCode::kTransport, text, 128 + signal);
      end_by(signal);
    }
    if (transport_->verdict().silent_s > 0) leave_without_the_others();
    throw_root_cause(outcomes ? *outcomes : exchange_past_the_ring(mine));
  }

 private:
  // Every rank for itself: those that could gather the words are not all there.
  void say_who_is_gone() {
    const Verdict verdict = transport_->verdict();
    if (verdict.silent_s <= 0 || said_.exchange(true)) return;
    const std::string text = fmt::format("rank {} gives up: {}", rank_, verdict.text);
    message("kvring: {}\n", text);
    print_json_where_heard(ErrorCode::kTransport, text, kTransportFailed);  // it may be killed a moment later
  }

  // Where this rank's host is cut off nobody would get it. The launcher's daemon would try to deliver it, and
  // on a connection with data under way TCP looks for no sign of life: it would stay for a quarter of an
  // hour.
  void print_json_where_heard(ErrorCode code, const std::string& text, int status) {
    const Verdict verdict = transport_->verdict();
    const bool cut_off = verdict.culprit == rank_ && verdict.silent_s > 0;
    if (!cut_off) print_json_error(code, text, status);
  }

  // Tells everyone how everyone ended. Empty when the ring failed meanwhile.
  std::optional<std::vector<Outcome>> exchange(const Outcome& mine) {
    try {
      transport_->barrier("the end of the other ranks");
      return std::vector<Outcome>(static_cast<std::size_t>(ranks_), mine);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // A failed ring carries nothing any more. A rank that does not come in time cannot be told: then only
  // MPI_Abort ends it.
  std::vector<Outcome> exchange_past_the_ring(const Outcome& mine) {
    constexpr std::chrono::seconds kPatience{3};
    const PackedOutcome sent = pack(mine);
    std::vector<PackedOutcome> all(static_cast<std::size_t>(ranks_));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&sent, sizeof sent, MPI_BYTE, all.data(), sizeof sent, MPI_BYTE, MPI_COMM_WORLD, &request);
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    for (int done = 0;;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) break;
      if (std::chrono::steady_clock::now() > give_up) {
        const ErrorCode code = mine.failed ? mine.code : ErrorCode::kTimeout;
        const std::string text = mine.failed ? mine.message : "the other ranks did not end";
        message("kvring: {} [{}]\n", text, error_code_name(code));
        print_json_error(code, text, exit_code(code));
        abort(exit_code(code));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return unpack(all);
  }

  // Some rank does not answer: it may be stopped, and only the launcher can end it; or its host may be cut
  // off, and then mpirun must notice that by itself before it is asked to kill. (Open MPI 4.1: an order to a
  // host that is gone leaves data without an answer, on which TCP does no keepalive; mpirun stays for a
  // quarter of an hour.) The keepalive that docs/cluster.md advises notices within six seconds.
  [[noreturn]] void leave_without_the_others() {
    constexpr double kLauncherNotices = 6.5;  // seconds after the last sign
    const double left = kLauncherNotices - transport_->verdict().silent_s;
    TemporaryFiles::remove_all();
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(0.5, left)));
    abort(kTransportFailed);  // as say_who_is_gone() said
  }

  [[noreturn]] static void abort(int code) {
    TemporaryFiles::remove_all();
    const GiveUp give_up(std::chrono::seconds(3), code, say_nothing);
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

  double timeout_s_;
  int ranks_;
  int rank_;
  int cores_per_rank_ = 1;
  std::atomic<bool> said_ = false;
  std::unique_ptr<Transport> transport_;
};

}  // namespace

std::unique_ptr<Team> make_mpi_team(const TeamSpec& spec, const Launch& launch) {
  // Until there is a transport that would notice it.
  const GiveUp give_up = unless_mpi_starts(launch, spec.timeout_s, exit_code(ErrorCode::kTimeout));
  initialise();
  return std::make_unique<MpiTeam>(spec, launch);
}

void leave_together(int code, const Outcome& ending) noexcept {
  if (!is_initialised()) {
    const Launch launch = detect_launch();
    if (code == 0 || !launch.launched) return;
    const GiveUp give_up = unless_mpi_starts(launch, 0, code);
    MPI_Init(nullptr, nullptr);
  }
  // MPICH 4.0 over TCP was seen to stay in there for ever.
  const GiveUp give_up(std::chrono::seconds(10), code, say_nothing);
  if (!roll_was_called) call_the_roll(ending);
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
