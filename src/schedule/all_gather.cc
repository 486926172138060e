#include "schedule/schedules.h"

namespace kvring {

std::vector<Step> all_gather_steps(const Needs& needs, std::int32_t rank) {
  std::vector<Step> steps(2);
  Step &gather = steps[0], &attend = steps[1];
  attend.step = 1;
  // Neighbours first: no two ranks begin with the same peer.
  for (std::int32_t hops = 0; hops < needs.ranks(); ++hops) {
    const std::int32_t owner = needs.after(rank, -hops), user = needs.after(rank, hops);
    if (needs.attends(rank, owner)) {
      if (hops > 0) gather.receives.push_back({{Cargo::kBlock, owner}, owner});
      attend.attends.push_back({rank, owner});
    }
    if (hops > 0 && needs.attends(user, rank)) gather.sends.push_back({{Cargo::kBlock, rank}, user});
  }
  attend.finishes = {rank};
  return steps;
}

}  // namespace kvring
