// The ranks of one run: threads of this process, or MPI processes of which this is one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch.h"
#include "kvring/error.h"
#include "kvring/transport.h"

namespace kvring::cli {

struct TeamSpec {
  std::optional<std::int64_t> ranks;      // default: the processes that mpirun started, or 1
  std::optional<std::string> transport;   // "inproc", "mpi"; default by how the process was started
  double timeout_s = 30;                  // without progress
  std::optional<bool> inline_progress{};  // MPI without a thread of its own; default: with one
};

// What a process and each of its ranks do in a run.
struct TeamWork {
  std::function<void()> prepare;        // once in this process, before any rank starts
  std::function<void(Transport&)> run;  // each rank, on a thread of its own
  // When the rank has failed and the others have been told; on a thread of its own where a signal ends it.
  std::function<void(Transport&, const std::string& reason)> failed;
  // The same thread, when the rank has ended and, if it failed, after that: frees what other
  // ranks may have been reading, which is where the rank waits for them.
  std::function<void(Transport&)> release;
};

class Team {
 public:
  virtual ~Team() = default;

  virtual int ranks() const noexcept = 0;
  virtual const char* transport() const noexcept = 0;
  virtual bool has_rank_0() const noexcept = 0;  // here: who prints
  // Cores of this machine that each of its ranks may use, at least 1.
  virtual int cores_per_rank() const noexcept = 0;

  // Returns when all ranks of the team have ended. If any failed, throws the root cause, the same on all
  // processes: that of the lowest rank whose error is not the echo of another's. Transports live as long as
  // the team. Call once.
  //
  // A signal that asks the process to end ends all ranks, and then the process as the signal says. Where
  // other processes do not answer, this one says whom it blames and ends.
  virtual void run(const TeamWork& work) = 0;
};

// Throws InvalidArgument or Unsupported when ranks, transport and launch do not go together.
std::unique_ptr<Team> make_team(const TeamSpec& spec);

// "Open MPI v4.1.4, ..." of the MPI that is built in; empty without.
std::string mpi_library_version();

// How one rank ended.
struct Outcome {
  bool failed = false;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};
// Runs what `work` has for a rank, and `prepare` before it; when something throws, tells the other ranks and
// has failed() see to it. Whatever release() has to do is left to do.
Outcome run_guarded(Transport& transport, const TeamWork& work, const std::function<void()>& prepare = {});
// Throws the root cause, if any rank failed.
void throw_root_cause(const std::vector<Outcome>& by_rank);
[[noreturn]] void throw_error(ErrorCode code, const std::string& message);

// Ends MPI, if this process has to do with it. The last thing before the process exits with `code`: mpirun
// kills the others as soon as one has failed, and the one with the message must have been heard by then. So
// all leave together, also where the command line was so wrong that no team was made: those that make one
// then throw `ending`, with the rank's name.
void leave_together(int code, const Outcome& ending) noexcept;

std::unique_ptr<Team> make_inproc_team(int ranks, double timeout_s);
// Exists only where MPI is built in. Throws InvalidArgument when the world has another size than asked for.
std::unique_ptr<Team> make_mpi_team(const TeamSpec& spec, const Launch& launch);

}  // namespace kvring::cli
