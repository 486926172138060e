#include <algorithm>

#include "schedule/schedules.h"

namespace kvring {

Trees::Trees(const Needs& needs) : members_(static_cast<std::size_t>(needs.ranks())) {
  places_.assign(members_.size() * members_.size(), -1);
  std::size_t most = 1;
  for (std::int32_t owner = 0; owner < needs.ranks(); ++owner) {
    if (!needs.has_queries(owner)) continue;
    std::vector<std::int32_t>& members = members_[static_cast<std::size_t>(owner)];
    for (std::int32_t hops = 0; hops < needs.ranks(); ++hops) {
      const std::int32_t member = needs.after(owner, hops);
      if (hops > 0 && !needs.attends(owner, member)) continue;
      places_[static_cast<std::size_t>(owner) * members_.size() + static_cast<std::size_t>(member)] =
          static_cast<std::int32_t>(members.size());
      members.push_back(member);
    }
    most = std::max(most, members.size());
  }
  while ((std::size_t{1} << rounds_) < most) ++rounds_;
}

std::vector<Step> tree_steps(const Needs& needs, const Trees& trees, std::int32_t rank) {
  const std::int32_t rounds = trees.rounds();
  std::vector<Step> steps(static_cast<std::size_t>(2 * rounds + 1));
  for (std::size_t t = 0; t < steps.size(); ++t) steps[t].step = static_cast<std::int32_t>(t);
  for (std::int32_t owner = 0; owner < needs.ranks(); ++owner) {
    const std::int32_t i = trees.place(owner, rank);
    if (i < 0) continue;
    const std::vector<std::int32_t>& members = trees.members(owner);
    const auto n = static_cast<std::int32_t>(members.size());
    const auto peer = [&](std::int32_t place) { return members[static_cast<std::size_t>(place)]; };
    for (std::int32_t round = 0; round < rounds; ++round) {
      const std::int32_t reach =
          1 << round;  // members that have the queries, and distance to those that get them
      Step& out = steps[static_cast<std::size_t>(round)];
      if (i < reach && i + reach < n) out.sends.push_back({{Cargo::kQueries, owner}, peer(i + reach)});
      if (i >= reach && i < 2 * reach) out.receives.push_back({{Cargo::kQueries, owner}, peer(i - reach)});
      // Partials come back over growing distances, from all members to the root.
      Step& back = steps[static_cast<std::size_t>(rounds + 1 + round)];
      if (i % (2 * reach) == reach) back.sends.push_back({{Cargo::kPartials, owner}, peer(i - reach)});
      if (i % (2 * reach) == 0 && i + reach < n)
        back.receives.push_back({{Cargo::kPartials, owner}, peer(i + reach)});
    }
    if (needs.attends(owner, rank)) steps[static_cast<std::size_t>(rounds)].attends.push_back({owner, rank});
  }
  steps.back().finishes = {rank};
  return steps;
}

}  // namespace kvring
