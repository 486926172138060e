#include "trace/align.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>

#include "runtime/recorder.h"
#include "trace/trace.h"

namespace kvring {
namespace {

// Of the ranks that share a clock, at one barrier.
struct Crossing {
  std::int64_t last_entered = std::numeric_limits<std::int64_t>::min();
  std::int64_t first_left = std::numeric_limits<std::int64_t>::max();
};
using Crossings = std::vector<Crossing>;  // by barrier

std::map<std::string, Crossings> crossings_by_clock(const std::vector<RankClock>& ranks) {
  std::map<std::string, Crossings> all;
  for (const RankClock& rank : ranks) {
    Crossings& crossings = all[rank.clock];
    crossings.resize(std::max(crossings.size(), rank.barriers.size()));
    for (std::size_t i = 0; i < rank.barriers.size(); ++i) {
      crossings[i].last_entered = std::max(crossings[i].last_entered, rank.barriers[i].entered);
      crossings[i].first_left = std::min(crossings[i].first_left, rank.barriers[i].left);
    }
  }
  return all;
}

ClockOffset offset_between(const Crossings& base, const Crossings& other) {
  const std::size_t barriers = std::min(base.size(), other.size());
  if (barriers == 0) return {};
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < barriers; ++i) {
    least = std::max(least, other[i].last_entered - base[i].first_left);
    most = std::min(most, other[i].first_left - base[i].last_entered);
  }
  return {least + (most - least) / 2, std::abs(most - least) / 2 + 1};
}

}  // namespace

std::vector<BarrierTimes> time_barriers(Transport& transport) {
  constexpr int kBarriers = 8;  // the quickest counts, and the first ones find the caches cold
  std::vector<BarrierTimes> times(kBarriers);
  for (BarrierTimes& time : times) {
    time.entered = nanoseconds(Operation::Clock::now());
    transport.barrier("the comparison of clocks");
    time.left = nanoseconds(Operation::Clock::now());
  }
  return times;
}

std::vector<ClockOffset> clock_offsets(const std::vector<RankClock>& ranks) {
  std::vector<ClockOffset> offsets(ranks.size());
  if (ranks.empty()) return offsets;
  const std::map<std::string, Crossings> crossings = crossings_by_clock(ranks);
  const Crossings& base = crossings.at(ranks[0].clock);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].clock != ranks[0].clock) offsets[r] = offset_between(base, crossings.at(ranks[r].clock));
  return offsets;
}

std::string clock_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? host_name() : boot;
}

}  // namespace kvring
