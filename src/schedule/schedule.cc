#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kvring/error.h"
#include "schedule/schedules.h"
#include "schedule/step.h"

namespace kvring {
namespace {

// The steps of a rank; what all ranks share is worked out here.
std::function<std::vector<Step>(std::int32_t rank)> steps_of(ScheduleKind kind, const Needs& needs) {
  if (needs.ranks() == 1) {
    return [&needs](std::int32_t) {
      Step alone;
      if (needs.attends(0, 0)) alone.attends = {{0, 0}};
      alone.finishes = {0};
      return std::vector<Step>{alone};
    };
  }
  switch (kind) {
    case ScheduleKind::kRing:
      return [&needs](std::int32_t rank) { return ring_steps(needs, rank); };
    case ScheduleKind::kAllGather:
      return [&needs](std::int32_t rank) { return all_gather_steps(needs, rank); };
    case ScheduleKind::kPassQ:
      return [&needs](std::int32_t rank) { return pass_q_steps(needs, rank); };
    case ScheduleKind::kUlysses:
      return [&needs](std::int32_t rank) { return ulysses_steps(needs, rank); };
    case ScheduleKind::kTree:
      return [&needs, trees = Trees(needs)](std::int32_t rank) { return tree_steps(needs, trees, rank); };
  }
  throw Internal(fmt::format("no schedule {}", static_cast<int>(kind)));
}

void check_ranks(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int rank) {
  const auto ranks = static_cast<int>(layouts.q.shards.size());
  if (rank < 0 || rank >= ranks)
    throw InvalidArgument(
        fmt::format("rank is {}; the layouts are of {} ranks, numbered from 0", rank, ranks));
  const std::string refusal = schedule_refusal(kind, problem, ranks);
  if (!refusal.empty()) throw Unsupported(refusal);
}

// As many ranks as would divide `units`, at most `ranks`.
std::int64_t dividing(std::int64_t units, std::int64_t ranks) {
  while (units % ranks != 0) --ranks;
  return ranks;
}

}  // namespace

bool attends_at_once(ScheduleKind kind, int ranks) noexcept {
  return ranks == 1 || kind == ScheduleKind::kAllGather || kind == ScheduleKind::kUlysses;
}

std::string schedule_refusal(ScheduleKind kind, const Problem& problem, int ranks) {
  const std::int64_t units = problem.batch * problem.kv_heads;
  if (kind != ScheduleKind::kUlysses || units % ranks == 0) return "";
  return fmt::format(
      "schedule ulysses shares the KV heads out, and {} of them (batch {} x kv_heads {}) do not divide over "
      "{} ranks; use {} ranks, or schedule ring",
      units, problem.batch, problem.kv_heads, ranks, dividing(units, ranks));
}

std::vector<Step> schedule_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                                 int rank) {
  check_ranks(kind, problem, layouts, rank);
  const Needs needs(problem, layouts);
  return steps_of(kind, needs)(rank);
}

void for_each_rank_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                         const std::function<void(int, const std::vector<Step>&)>& visit) {
  check_ranks(kind, problem, layouts, 0);
  const Needs needs(problem, layouts);
  const auto steps = steps_of(kind, needs);
  for (std::int32_t rank = 0; rank < needs.ranks(); ++rank) visit(rank, steps(rank));
}

std::vector<Lap> make_laps(const Problem& problem, std::int64_t heads_per_lap) {
  if (heads_per_lap < 1)
    throw InvalidArgument(fmt::format("heads_per_lap is {}; it must be 1 or more", heads_per_lap));
  const std::int64_t units = problem.batch * problem.kv_heads;
  const std::int64_t width = std::min(heads_per_lap, units);
  std::vector<Lap> laps;
  for (std::int64_t begin = 0; begin < units; begin += width)
    laps.push_back({begin, std::min(begin + width, units)});
  return laps;
}

std::int64_t tile_pairs(ScheduleKind kind, int rank, std::int64_t units, std::span<const std::int64_t> panels,
                        std::span<const std::int64_t> tiles) {
  const auto sum = [](std::span<const std::int64_t> of) {
    return std::accumulate(of.begin(), of.end(), std::int64_t{0});
  };
  const auto own = static_cast<std::size_t>(rank);
  switch (kind) {
    case ScheduleKind::kRing:
    case ScheduleKind::kAllGather:
      return units * panels[own] * sum(tiles);
    case ScheduleKind::kPassQ:
    case ScheduleKind::kTree:
      return units * sum(panels) * tiles[own];
    case ScheduleKind::kUlysses:
      return units / std::ssize(tiles) * sum(panels) * sum(tiles);
  }
  return 0;
}

Lap share_of(const Lap& lap, std::int32_t share, int ranks) noexcept {
  if (share == kWholeLap) return lap;
  const std::int64_t width = lap.units() / ranks;
  return {lap.kv_begin + share * width, lap.kv_begin + (share + 1) * width};
}

}  // namespace kvring
