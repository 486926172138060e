#include "tests/sim/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kvring::sim {
namespace {

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

class Judge {
 public:
  Judge(const World& world, const std::vector<Fault>& faults, const Run& run)
      : world_(world), faults_(faults), run_(run) {}

  std::vector<std::string> all() {
    if (run_.hung) fault("the run did not come to an end by itself");
    for (int rank = 0; rank < world_.ranks; ++rank) each(rank, run_.ends[static_cast<std::size_t>(rank)]);
    together();
    if (faults_.size() == 1 && run_.fired[0]) culprit(faults_[0]);
    return std::move(wrong_);
  }

 private:
  void fault(std::string text) { wrong_.push_back(std::move(text)); }

  void each(int rank, const RankEnd& end) {
    if (end.wrong > 0) fault(fmt::format("rank {}: {} calls returned wrong bits", rank, end.wrong));
    if (end.crashed) return;
    if (!end.returned && !end.code)
      fault(fmt::format("rank {} ended with an error that is not kvring's: {}", rank, end.error));
    if (end.code && *end.code != ErrorCode::kTransport && *end.code != ErrorCode::kTimeout)
      fault(fmt::format("rank {} ended with {}: {}", rank, error_code_name(*end.code), end.error));
    const Duration late = end.ended - std::max(run_.last_progress, kStart);
    if (late > longest_end(world_))
      fault(fmt::format("rank {} ended {:.6f} s after the last progress, the bound is {:.6f} s", rank,
                        seconds(late), seconds(longest_end(world_))));
  }

  // A rank that passed the last barrier has told its caller that all is well.
  void together() {
    const auto returned = std::ranges::any_of(run_.ends, [](const RankEnd& e) { return e.returned; });
    const bool harmless = std::ranges::all_of(faults_, [this](const Fault& f) {
      return f.harmless() || !run_.fired[static_cast<std::size_t>(&f - faults_.data())];
    });
    for (int rank = 0; rank < world_.ranks; ++rank) {
      const RankEnd& end = run_.ends[static_cast<std::size_t>(rank)];
      if (returned && end.right != world_.calls)
        fault(fmt::format("a rank returned, but rank {} has only {} of {} results", rank, end.right,
                          world_.calls));
      if (harmless && !end.returned && !end.crashed)
        fault(fmt::format("no fault that matters, but rank {} ended with: {}", rank, end.error));
    }
  }

  // Whom the ranks that can know must name. Only of an error: the fault may have come when all was done.
  void culprit(const Fault& cause) {
    for (int rank = 0; rank < world_.ranks; ++rank) {
      const RankEnd& end = run_.ends[static_cast<std::size_t>(rank)];
      if (end.crashed || !end.code) continue;
      const std::vector<int> right = may_name(cause, rank);
      if (!right.empty() && std::ranges::find(right, end.verdict.culprit) == right.end())
        fault(fmt::format("rank {} names rank {} ({}), right is {}", rank, end.verdict.culprit,
                          end.verdict.text, fmt::join(right, " or ")));
    }
  }

  std::vector<int> may_name(const Fault& cause, int rank) const {
    switch (cause.kind) {
      case FaultKind::kCrash:
        return {cause.rank};
      case FaultKind::kStall:
        // By itself too, when it wakes up and hears from a third rank that it was given up.
        return rank == cause.rank && world_.ranks == 2 ? std::vector{0, 1} : std::vector{cause.rank};
      case FaultKind::kIsolate:
        // Between two ranks nobody can tell which one is cut off.
        return rank == cause.rank && world_.ranks == 2 ? std::vector{1 - rank} : std::vector{cause.rank};
      case FaultKind::kCut:
        if (rank == cause.rank) return {cause.peer};
        if (rank == cause.peer) return {cause.rank};
        return {cause.rank, cause.peer};
      default:
        return {};
    }
  }

  const World& world_;
  const std::vector<Fault>& faults_;
  const Run& run_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> judge(const World& world, const std::vector<Fault>& faults, const Run& run) {
  return Judge(world, faults, run).all();
}

const RankEnd* first_error(const Run& run) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : run.ends)
    if (!end.crashed && !end.returned && (!first || end.came < first->came)) first = &end;
  return first;
}

std::string caught_by(const Run& run) {
  const RankEnd* first = first_error(run);
  if (!first) return "";
  constexpr std::array<std::pair<const char*, const char*>, 12> kGuards = {{
      {"checksum", "checksum"},
      {" was due", "sequence"},
      {"a header has", "length"},
      {"has room for", "length"},
      {"its header says", "length"},
      {"truncated", "length"},
      {"were due", "length"},
      {" expected block ", "header"},
      {"disagree", "agreement"},
      {"connection to", "network"},
      {"heard nothing", "silence"},
      {"waited", "deadline"},
  }};
  for (const auto& [words, guard] : kGuards)
    if (first->error.find(words) != std::string::npos) return guard;
  return "other";
}

}  // namespace kvring::sim
