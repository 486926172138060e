#include <algorithm>

#include "schedule/schedules.h"

namespace kvring {
namespace {

// The ranks of one owner's tree, the root first, and where `rank` stands among them; -1: not at all.
struct Members {
  std::vector<std::int32_t> ranks;
  std::int32_t place = -1;
};

Members members_of(const Needs& needs, std::int32_t owner, std::int32_t rank) {
  Members members;
  for (std::int32_t hops = 0; hops < needs.ranks(); ++hops) {
    const std::int32_t member = needs.after(owner, hops);
    if (hops > 0 && !needs.attends(owner, member)) continue;
    if (member == rank) members.place = static_cast<std::int32_t>(members.ranks.size());
    members.ranks.push_back(member);
  }
  return members;
}

std::int32_t rounds_for(std::size_t members) {
  std::int32_t rounds = 0;
  while ((std::size_t{1} << rounds) < members) ++rounds;
  return rounds;
}

}  // namespace

std::vector<Step> tree_steps(const Needs& needs, std::int32_t rank) {
  std::vector<Members> trees(static_cast<std::size_t>(needs.ranks()));
  std::int32_t rounds = 0;
  for (std::int32_t owner = 0; owner < needs.ranks(); ++owner) {
    if (!needs.has_queries(owner)) continue;
    Members& tree = trees[static_cast<std::size_t>(owner)];
    tree = members_of(needs, owner, rank);
    rounds = std::max(rounds, rounds_for(tree.ranks.size()));
  }
  std::vector<Step> steps(static_cast<std::size_t>(2 * rounds + 1));
  for (std::size_t t = 0; t < steps.size(); ++t) steps[t].step = static_cast<std::int32_t>(t);
  for (std::int32_t owner = 0; owner < needs.ranks(); ++owner) {
    const Members& tree = trees[static_cast<std::size_t>(owner)];
    const std::int32_t i = tree.place, n = static_cast<std::int32_t>(tree.ranks.size());
    if (i < 0) continue;
    const auto peer = [&](std::int32_t place) { return tree.ranks[static_cast<std::size_t>(place)]; };
    for (std::int32_t round = 0; round < rounds; ++round) {
      const std::int32_t reach = 1 << round;  // members that have the queries, and distance of what they do
      Step& out = steps[static_cast<std::size_t>(round)];
      if (i < reach && i + reach < n) out.sends.push_back({{Cargo::kQueries, owner}, peer(i + reach)});
      if (i >= reach && i < 2 * reach) out.receives.push_back({{Cargo::kQueries, owner}, peer(i - reach)});
      // In the last round of the way out the distance is largest; the way back begins with the smallest.
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
