#include "schedule/schedules.h"

namespace kvring {

std::vector<Step> ring_steps(const Needs& needs, std::int32_t rank) {
  const std::int32_t ranks = needs.ranks();
  std::vector<Step> steps(static_cast<std::size_t>(ranks));
  for (std::int32_t t = 0; t < ranks; ++t) {
    Step& step = steps[static_cast<std::size_t>(t)];
    step.step = t;
    const std::int32_t owner = needs.after(rank, -t), next = needs.after(rank, -t - 1);
    if (t + 1 < ranks && needs.block_reach(next) > t)
      step.receives.push_back({{Cargo::kBlock, next}, needs.after(rank, -1)});
    if (needs.block_reach(owner) > t) step.sends.push_back({{Cargo::kBlock, owner}, needs.after(rank, 1)});
    if (needs.attends(rank, owner)) step.attends.push_back({rank, owner});
  }
  steps.back().finishes = {rank};
  return steps;
}

}  // namespace kvring
