#include "cli/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "transport/deadline.h"

namespace kvring::cli {
namespace {

// "rank 2 failed: ..." is what every other rank hears of rank 2's failure.
bool is_echo(const Outcome& outcome, int ranks) {
  if (outcome.code != ErrorCode::kTransport) return false;
  for (int r = 0; r < ranks; ++r) {
    if (outcome.message.starts_with(failure_text(r, ""))) return true;
  }
  return false;
}

#ifndef KVRING_CLI_MPI
[[noreturn]] void refuse_mpi() {
  throw Unsupported(
      "this kvring was built without MPI; use transport inproc, or build with -DKVRING_MPI=ON where MPI is "
      "installed");
}
#endif

}  // namespace

void throw_error(ErrorCode code, const std::string& message) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      throw InvalidArgument(message);
    case ErrorCode::kUnsupported:
      throw Unsupported(message);
    case ErrorCode::kInputFile:
      throw InputFile(message);
    case ErrorCode::kTransport:
      throw TransportError(message);
    case ErrorCode::kTimeout:
      throw Timeout(message);
    case ErrorCode::kOutOfBudget:
      throw OutOfBudget(message);
    case ErrorCode::kInternal:
      break;
  }
  throw Internal(message);
}

Outcome run_guarded(Transport& transport, const TeamWork& work, const std::function<void()>& prepare) {
  Outcome outcome;
  try {
    if (prepare) prepare();
    work.run(transport);
    return outcome;
  } catch (const Error& error) {
    outcome = {true, error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    outcome = {true, ErrorCode::kOutOfBudget, "the machine has no memory left for this rank; use more ranks"};
  } catch (const std::exception& error) {
    outcome = {true, ErrorCode::kInternal, error.what()};
  }
  transport.fail(outcome.message);
  // Who waited too long does not yet say whose fault it was.
  if (outcome.code == ErrorCode::kTimeout) outcome.message += "; " + transport.verdict().text;
  if (work.failed) work.failed(transport, outcome.message);
  return outcome;
}

void throw_root_cause(const std::vector<Outcome>& by_rank) {
  const auto ranks = static_cast<int>(by_rank.size());
  const auto failed = [](const Outcome& o) { return o.failed; };
  const auto is_root = [&](const Outcome& o) { return o.failed && !is_echo(o, ranks); };
  auto root = std::find_if(by_rank.begin(), by_rank.end(), is_root);
  if (root == by_rank.end()) root = std::find_if(by_rank.begin(), by_rank.end(), failed);
  if (root == by_rank.end()) return;
  // What one rank alone met is more use with its name; what all met (a missing file) needs none, nor does
  // what rank 0 does for all.
  const bool alone = root != by_rank.begin() && std::count_if(by_rank.begin(), by_rank.end(), is_root) == 1;
  const bool named = root->message.starts_with("rank ");
  throw_error(root->code, alone && !named ? fmt::format("rank {}: {}", root - by_rank.begin(), root->message)
                                          : root->message);
}

std::unique_ptr<Team> make_team(const TeamSpec& spec) {
  const Launch launch = detect_launch();
  const bool use_mpi = spec.transport ? *spec.transport == "mpi" : launch.launched;
  if (!use_mpi) {
    if (launch.size > 1)
      throw InvalidArgument(fmt::format(
          "transport inproc runs all ranks in one process, but {} processes were started ({}); use transport "
          "mpi, or start one",
          launch.size, launch.by));
    if (spec.inline_progress)
      throw InvalidArgument(
          "--mpi-progress goes with transport mpi; ranks of one process move nothing by MPI");
    const std::int64_t ranks = spec.ranks.value_or(1);
    if (ranks < 1 || ranks > 1024)
      throw InvalidArgument(
          fmt::format("--ranks is {}; in one process it must be 1 to 1024 (mpirun may start more)", ranks));
    return make_inproc_team(static_cast<int>(ranks), spec.timeout_s);
  }
#ifdef KVRING_CLI_MPI
  return make_mpi_team(spec, launch);
#else
  refuse_mpi();
#endif
}

#ifndef KVRING_CLI_MPI
void leave_together(int, const Outcome&) noexcept {}
std::string mpi_library_version() { return {}; }
#endif

}  // namespace kvring::cli
