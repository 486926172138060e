// A whole job as it is timed: a ring in this process, made once and used again and again.
#pragma once

#include <functional>
#include <vector>

#include "cli/bench/sample.h"
#include "cli/report.h"
#include "cli/team.h"

namespace kvring::cli {

struct RingSamples {
  std::vector<Sample> samples;       // by repeat: the slowest rank, and the time of the whole process
  std::vector<RankReport> per_rank;  // of the repeat whose time is the median, or the next shorter
  bool bits_invariant = true;
};

// Every rank fills tensors of its own with random numbers and attends them repeats + 1 times; the first does
// not count. `progress` is called on this thread with the share done. Call once for a team.
RingSamples time_ring(const Setup& setup, Team& team, int repeats,
                      const std::function<void(double)>& progress);

}  // namespace kvring::cli
