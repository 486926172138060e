#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"
#include "schedule/step.h"

namespace kvring {

std::vector<Step> schedule_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                                 int rank) {
  switch (kind) {
    case ScheduleKind::kRing:
      return ring_steps(problem, layouts, rank);
  }
  throw Internal(fmt::format("no schedule {}", static_cast<int>(kind)));
}

void for_each_rank_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                         const std::function<void(int, const std::vector<Step>&)>& visit) {
  switch (kind) {
    case ScheduleKind::kRing:
      return for_each_ring_steps(problem, layouts, visit);
  }
  throw Internal(fmt::format("no schedule {}", static_cast<int>(kind)));
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

}  // namespace kvring
