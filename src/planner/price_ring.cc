#include <algorithm>

#include "planner/price.h"

namespace kvring {
namespace {

struct LapTime {
  double total_s = 0, exposed_s = 0;
};

// One lap of a ring: in every step the next block travels while this one is attended, and neighbours wait for
// the slowest rank.
LapTime lap_time(const Setting& s, double units) {
  const double bytes = units * static_cast<double>(s.slice_keys() * s.key_bytes());
  const double hop_s = s.network().slowest_hop(bytes).seconds;
  LapTime time;
  for (const StepWork& step : s.work().steps) {
    const double compute =
        step.most_pairs > 0 ? s.attend_s(static_cast<double>(step.most_pairs), units, bytes) : 0;
    const double transfer = step.moves ? hop_s : 0;
    time.total_s += std::max(compute, transfer);
    time.exposed_s += std::max(0.0, transfer - compute);
  }
  return time;
}

}  // namespace

Price price_ring(const Setting& s) {
  Price price;
  price.name = schedule_name(ScheduleKind::kRing);
  const std::int64_t lap = s.memory().heads_per_lap;
  const std::int64_t full_laps = s.units() / lap, rest = s.units() % lap;
  const LapTime full = lap_time(s, static_cast<double>(lap));
  const LapTime last = rest > 0 ? lap_time(s, static_cast<double>(rest)) : LapTime();
  const auto over_laps = [&](double a, double b) {
    return (static_cast<double>(full_laps) * a + b) * static_cast<double>(s.layers());
  };
  price.total_s = over_laps(full.total_s, last.total_s);
  price.exposed_s = over_laps(full.exposed_s, last.exposed_s);
  const std::int64_t block = lap * s.slice_keys() * s.key_bytes();
  std::int64_t pairs = 0;
  bool moves = false;
  for (const StepWork& step : s.work().steps) {
    pairs = std::max(pairs, step.most_pairs);
    moves |= step.moves;
  }
  price.compute_s_per_step =
      s.attend_s(static_cast<double>(pairs), static_cast<double>(lap), static_cast<double>(block));
  if (moves) {
    price.bytes_per_hop = block;
    price.transfer_s_per_step = s.network().slowest_hop(static_cast<double>(block)).seconds;
  }
  price.memory = s.memory().attention;
  price.memory.insert(price.memory.end(), s.memory().model.begin(), s.memory().model.end());
  price.fits = s.fits(price.memory);
  return price;
}

}  // namespace kvring
