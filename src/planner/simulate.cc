#include "planner/simulate.h"

#include <algorithm>
#include <utility>

#include "planner/player.h"

namespace kvring {

Simulation simulate(ScheduleKind kind, const Setting& s, const SimulationOptions& options) {
  const double ranks = s.ranks();
  const std::int64_t width = s.of(kind).memory.heads_per_lap;
  const std::int64_t laps = (s.units() + width - 1) / width * s.layers();
  Script script = make_script(kind, s);
  const double steps =
      std::max(ranks * static_cast<double>(script.steps), static_cast<double>(script.transfers));
  const auto played =
      std::min(laps, std::max<std::int64_t>(1, static_cast<std::int64_t>(options.most_steps / steps)));
  Simulation simulation = Player(std::move(script), s, options, {played, static_cast<double>(width)}).play();
  simulation.laps = laps;
  if (simulation.stall) return simulation;
  // The last lap of a layer may carry fewer heads.
  const double full_laps =
      static_cast<double>(s.units()) / static_cast<double>(width) * static_cast<double>(s.layers());
  simulation.total_s = simulation.played_s + (full_laps - static_cast<double>(played)) * simulation.total_s;
  simulation.total_s += static_cast<double>(s.layers()) *
                        s.call_s(s.of(kind).memory.attention, full_laps / static_cast<double>(s.layers()));
  const double alone = s.attend_s(s.of(kind).work.all_pairs, static_cast<double>(s.units()), 0) *
                       static_cast<double>(s.layers());
  simulation.efficiency = alone / (ranks * simulation.total_s);
  return simulation;
}

}  // namespace kvring
