#include "schedule/schedules.h"

namespace kvring {

std::vector<Step> pass_q_steps(const Needs& needs, std::int32_t rank) {
  const std::int32_t ranks = needs.ranks();
  std::vector<Step> steps(static_cast<std::size_t>(ranks) + 1);
  for (std::int32_t t = 0; t <= ranks; ++t) {
    Step& step = steps[static_cast<std::size_t>(t)];
    step.step = t;
    if (t < ranks) {
      const std::int32_t owner = needs.after(rank, -t), next = needs.after(rank, -t - 1);
      if (t + 1 < ranks && needs.query_reach(next) > t)
        step.receives.push_back({{Cargo::kQueries, next}, needs.after(rank, -1)});
      if (needs.query_reach(owner) > t)
        step.sends.push_back({{Cargo::kQueries, owner}, needs.after(rank, 1)});
      if (needs.attends(owner, rank)) step.attends.push_back({owner, rank});
    }
    if (t < 2) continue;
    // What was attended in the step before goes home.
    const std::int32_t guest = needs.after(rank, 1 - t), host = needs.after(rank, t - 1);
    if (needs.attends(rank, host)) step.receives.push_back({{Cargo::kPartials, rank}, host});
    if (needs.attends(guest, rank)) step.sends.push_back({{Cargo::kPartials, guest}, guest});
  }
  steps.back().finishes = {rank};
  return steps;
}

}  // namespace kvring
