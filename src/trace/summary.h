// Where the time of each rank went.
#pragma once

#include <vector>

#include "trace/trace.h"

namespace kvring {

struct RankSummary {
  double busy_s = 0;  // computing
  double exposed_late_s = 0, exposed_transfer_s = 0, exposed_send_s = 0;
  double idle_s = 0;      // neither: the rank had begun later or finished earlier than others
  double efficiency = 0;  // busy_s of the whole run
};
struct TraceSummary {
  double wall_s = 0;      // from the first computation or wait of any rank to the last
  double efficiency = 0;  // mean of the ranks
  std::vector<RankSummary> ranks;
};
TraceSummary summarize(const Trace& trace);

// In which times up to so many seconds are well read.
struct TimeUnit {
  double seconds;
  const char* name;  // "s", "ms", "us"
};
TimeUnit unit_for(double seconds);

}  // namespace kvring
