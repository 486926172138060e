// Which schedule wins where: over the length of a slice and the speed of the slowest link.
#pragma once

#include <string>
#include <vector>

#include "planner/plan.h"

namespace kvring {

struct Regimes {
  int ranks = 0;
  std::string title, subtitle;
  std::vector<std::int64_t> slices;      // queries per rank, rising
  std::vector<double> bytes_per_s;       // rising
  std::vector<std::string> names;        // of schedules that win somewhere, and where this build runs them
  std::vector<std::vector<int>> winner;  // [slice][speed]: index of the name
  std::vector<std::int64_t> break_even;  // [speed]: the slice that hides a hop
  struct Mark {
    std::string name;
    double bytes_per_s;
  };
  std::vector<Mark> links;        // of the machine
  std::int64_t slice_tokens = 0;  // of the query
};

// The query's heads and mask on a ring of the same size, all links alike and as fast as the axis says;
// latency stays that of the machine's slowest link. Memory is not looked at: this is about time.
Regimes make_regimes(const PlanQuery& query, const Placement& placement);

std::string regimes_svg(const Regimes& regimes);

}  // namespace kvring
