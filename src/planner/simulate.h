// The very steps of a schedule, played in virtual time on a described network.
//
// Each rank does what the executor does (src/runtime/executor.cc): in every step it posts the receives, each
// once the sends out of its slot are over, then the sends; attends; and waits for the receives one after the
// other, merging partials. What only passes through goes on as soon as it has arrived and the next rank has
// posted its receive. The time to pack a rank's own block and to finish rows is left out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kvring/operation.h"
#include "planner/moment.h"
#include "planner/setting.h"

namespace kvring {

struct Faults {
  struct Slow {
    int rank = 0;
    double factor = 1;  // times as long
  };
  struct Stop {
    int rank = 0;
    double at_s = 0;  // from then on it computes, sends and receives nothing
  };
  std::vector<Slow> ranks;  // computing
  std::vector<Slow> links;  // from that rank to the next
  std::vector<Stop> stops;
};

struct SimulationOptions {
  double jitter = 0;  // every computing and transfer takes 1 + jitter * u times as long, u even over 0 .. 1
  std::uint64_t seed = 0;
  Faults faults;
  double timeout_s = 30;  // a rank gives up after so long without progress of its peer
  // Of all ranks, or transfers where they are more, to be played: a lap of a ring of 4,096 ranks.
  double most_steps = 1.7e7;
  // Told of what every rank did as it is over, with times since the start and in no order; but not of
  // transfers and waits that a stopped rank never ends. Empty: nobody listens.
  std::function<void(int rank, const Operation&)> tell;
  // Told now and then of the share of the steps that have been played. Empty: nobody listens.
  std::function<void(double share)> progress;
  // Of the first laps that make at most about so many: 90 MB of a trace.
  double most_told = 300'000;
  double memory_bytes = 1e18;  // that the simulation may take
};

struct RankTimes {
  double compute_s = 0;
  // As the executor tells them apart: what the sender of a parcel was late after there was room for it here;
  // what would have been waited for even had it been sent at once; a slot out of which is still being sent.
  double late_s = 0;
  double transfer_s = 0;
  double send_s = 0;
  double end_s = 0;
};

// How a run with a stopped rank ends.
struct Stall {
  int rank = 0;  // the first to give up, or the stopped one where nobody waits for it
  int peer = 0;  // that it waits for, or itself
  bool receives = false;
  Cargo cargo = Cargo::kBlock;  // what it wants to receive, or to have sent
  int owner = -1;
  std::int64_t lap = 0;
  int step = 0;
  double at_s = 0;
};

struct Simulation {
  double total_s = 0;  // the last rank's end; of all laps and layers, but not of a stalled run
  // Computing that one rank alone would have to do, over the ranks times the total.
  double efficiency = 0;
  std::int64_t steps = 0;  // of a rank in a lap
  std::int64_t laps = 0;
  // Laps are alike: where they are many the first are played, and the rest take as long as the last of those.
  // Times of ranks and the critical path are of those played.
  std::int64_t laps_played = 0;
  std::int64_t laps_told = 0;  // the first of those
  double played_s = 0;
  std::vector<RankTimes> ranks;
  CriticalPath path;
  std::optional<Stall> stall;
};

// Throws InvalidArgument for faults of ranks that are not there, or factors below 0, and where one lap is too
// much to be told of; OutOfBudget where it would take too much memory; Unsupported where the schedule cannot
// serve the setting.
Simulation simulate(ScheduleKind kind, const Setting& setting, const SimulationOptions& options);

}  // namespace kvring
