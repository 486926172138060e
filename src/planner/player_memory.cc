// What a simulation takes, before anything is built.
#include <algorithm>

#include "planner/player.h"

namespace kvring {

double Player::memory_needed(ScheduleKind kind, const Setting& s) {
  const ScheduleWork& work = s.of(kind).work;
  const double ranks = s.ranks();
  double sent = 0, posted = 0;
  for (const std::int64_t parcels : work.sent) sent += static_cast<double>(parcels);
  // Of a rank in a step, in either direction; as many links are used.
  for (const StepWork& step : work.steps)
    posted = std::max(posted, static_cast<double>(step.near.count + step.far.count));
  // Heads that are shared out meet all queries and all keys on every rank.
  const double meetings = kind == ScheduleKind::kUlysses ? ranks * ranks : ranks;
  // A parcel is received, sent or passed on, and left; queries meet a block and are attended; a step ends.
  const double instructions = 3 * sent + ranks * (2 * meetings + static_cast<double>(work.steps.size()));
  constexpr double kNumberedLink = 48;  // in the map from ends to numbers
  constexpr double kPosted =
      SharedLinks::kMessageBytes + sizeof(Carried) + sizeof(Script::Link) + sizeof(OpenLink) + kNumberedLink;
  double slots = 0;
  for (const Script::Slots& of_cargo : script_slots(kind, s))
    slots += static_cast<double>(of_cargo.own.slots + of_cargo.arriving.slots);
  constexpr double kOrder = 8;  // of a slot, in SlotOrder
  return sizeof(Instruction) * instructions +
         ranks * (posted * kPosted + slots * (sizeof(SlotState) + kOrder));
}

}  // namespace kvring
