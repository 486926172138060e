// The very steps of a ring, played in virtual time on a described network.
//
// Each rank does what the executor does (src/runtime/executor.cc): in every step it waits until the other
// slot's sends are over, posts the receive of the next block into it, attends the block at hand, and waits
// for the next. A block goes on to the next rank as soon as it has arrived and that rank has posted its
// receive, not after it was attended. The time to pack a rank's own block and to finish rows is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
  double timeout_s = 30;      // a rank gives up after so long without progress of its peer
  double most_steps = 1.7e7;  // of all ranks, to be played; a lap of 4,096 ranks, a few seconds
};

struct RankTimes {
  double compute_s = 0;
  double late_s = 0;      // waiting for a block that its sender could not send yet
  double transfer_s = 0;  // waiting for a block on its way
  double send_s = 0;      // waiting for a slot whose block is still being sent
  double end_s = 0;
};

// The chain of computing and transfers that the end had to wait for.
struct CriticalPath {
  double compute_s = 0;
  double transfer_s = 0;
  std::int64_t transfers = 0;  // that it passes
  int begins_at = 0;           // rank
  int ends_at = 0;
};

// How a run with a stopped rank ends.
struct Stall {
  int rank = 0;  // the first to give up, or the stopped one where nobody waits for it
  int peer = 0;  // that it waits for, or itself
  bool receives = false;
  int block = -1;  // that it wants to receive
  std::int64_t lap = 0;
  int step = 0;
  double at_s = 0;
};

struct Simulation {
  double total_s = 0;  // the last rank's end; of all laps and layers, but not of a stalled run
  // Computing that one rank alone would have to do, over the ranks times the total.
  double efficiency = 0;
  std::int64_t laps = 0;
  // Laps are alike: where they are many the first are played, and the rest take as long as the last of those.
  // Times of ranks and the critical path are of those played.
  std::int64_t laps_played = 0;
  double played_s = 0;
  std::vector<RankTimes> ranks;
  CriticalPath path;
  std::optional<Stall> stall;
};

// Throws InvalidArgument for faults of ranks that are not there, or factors below 0.
Simulation simulate(const Setting& setting, const SimulationOptions& options);

}  // namespace kvring
