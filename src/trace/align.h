// The clocks of hosts, compared by what a barrier says about them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvring/transport.h"

namespace kvring {

// When a rank came to a barrier and when it left it, by its own clock, in nanoseconds.
struct BarrierTimes {
  std::int64_t entered = 0, left = 0;
};
// A few barriers; all ranks must call it.
std::vector<BarrierTimes> time_barriers(Transport& transport);

struct RankClock {
  std::string clock;  // ranks with the same name read the same clock
  std::vector<BarrierTimes> barriers;
};
struct ClockOffset {
  std::int64_t offset = 0;  // clock of the rank minus that of rank 0, in nanoseconds
  std::int64_t error = 0;   // at most, either way
};
// By rank. Nobody leaves a barrier before everybody has entered it. So for ranks a and b of different hosts,
//
//   entered_b - left_a <= clock_b - clock_a <= left_b - entered_a,
//
// whatever the network does; the offset is the middle of what all barriers and all ranks of the two hosts
// leave open. Clocks that drift apart later are not followed.
std::vector<ClockOffset> clock_offsets(const std::vector<RankClock>& ranks);

// Names the clock of this machine since it was started.
std::string clock_name();

}  // namespace kvring
