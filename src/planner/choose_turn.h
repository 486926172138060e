// How a turn of a conversation attends its cache: the cheapest of the schedules that suit it.
#pragma once

#include <optional>
#include <string>

#include "kvring/ring.h"
#include "planner/machine.h"

namespace kvring {

struct TurnChoice {
  ScheduleKind schedule = ScheduleKind::kRing;
  std::string reason;  // one sentence
};

// Of ring, pass-q and tree, priced on `machine` with `per_node` neighbouring ranks on each node; or `wanted`,
// where it is given. A window is priced as if it were not there. The same on every rank.
TurnChoice choose_turn(const Machine& machine, const Problem& problem, const Layouts& layouts, int per_node,
                       std::optional<ScheduleKind> wanted);

}  // namespace kvring
