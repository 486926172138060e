#include "schedule/schedules.h"

namespace kvring {

std::vector<Step> ulysses_steps(const Needs& needs, std::int32_t rank) {
  const std::int32_t ranks = needs.ranks();
  // Somebody attends its block.
  const auto used = [&](std::int32_t owner) {
    return needs.block_reach(owner) > 0 || needs.attends(owner, owner);
  };
  std::vector<Step> steps(static_cast<std::size_t>(ranks) + 2);
  for (std::size_t t = 0; t < steps.size(); ++t) steps[t].step = static_cast<std::int32_t>(t);
  for (std::int32_t hops = 0; hops < ranks; ++hops) {
    const std::int32_t from = needs.after(rank, -hops), to = needs.after(rank, hops);
    if (hops > 0) {
      Step& exchange = steps[0];
      if (needs.has_queries(from)) exchange.receives.push_back({{Cargo::kQueries, from, rank}, from});
      if (used(from)) exchange.receives.push_back({{Cargo::kBlock, from, rank}, from});
      if (needs.has_queries(rank)) exchange.sends.push_back({{Cargo::kQueries, rank, to}, to});
      if (used(rank)) exchange.sends.push_back({{Cargo::kBlock, rank, to}, to});
      Step& back = steps[static_cast<std::size_t>(hops) + 2];
      if (needs.has_queries(rank)) back.receives.push_back({{Cargo::kRows, rank, from}, from});
      if (needs.has_queries(to)) back.sends.push_back({{Cargo::kRows, to, rank}, to});
    }
    if (!needs.has_queries(to)) continue;
    Step& attend = steps[static_cast<std::size_t>(hops) + 1];
    for (std::int32_t owner = 0; owner < ranks; ++owner) {
      if (needs.attends(to, owner)) attend.attends.push_back({to, owner});
    }
    attend.finishes = {to};
  }
  return steps;
}

}  // namespace kvring
