#include "planner/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kvring/error.h"
#include "planner/player.h"
#include "planner/price.h"
#include "planner/text.h"

namespace kvring {
namespace {

// A step attends something; and whatever is sent is received, and may be waited for.
std::int64_t laps_to_tell(const ScheduleWork& work, int ranks, double most) {
  std::int64_t sent = 0;
  for (const std::int64_t parcels : work.sent) sent += parcels;
  const double operations =
      static_cast<double>(ranks) * static_cast<double>(work.steps.size()) + 3 * static_cast<double>(sent);
  if (operations > most)
    throw InvalidArgument(
        fmt::format("a trace of {} ranks would hold about {:.0f} operations of every lap, too many to be "
                    "looked at; trace at most {} ranks",
                    ranks, operations, static_cast<int>(ranks * std::sqrt(most / operations))));
  return static_cast<std::int64_t>(most / operations);
}

// At most P^2 of everything, or P^3 of shared heads.
void check_memory(ScheduleKind kind, const Setting& s, double most) {
  const double needed = Player::memory_needed(kind, s);
  if (needed <= most) return;
  const double growth = kind == ScheduleKind::kUlysses ? 3 : 2;
  const int ranks = std::max(1, static_cast<int>(s.ranks() * std::pow(most / needed, 1 / growth)));
  std::string instead = fmt::format("simulate at most {} ranks", ranks);
  if (kind != ScheduleKind::kRing && Player::memory_needed(ScheduleKind::kRing, s) <= most)
    instead += ", or schedule ring";
  throw OutOfBudget(fmt::format("simulating {} on {} ranks takes up to {} of memory, and there are {}; {}",
                                schedule_name(kind), s.ranks(), decimal_bytes_text(needed),
                                decimal_bytes_text(most), instead));
}

}  // namespace

Simulation simulate(ScheduleKind kind, const Setting& s, const SimulationOptions& options) {
  const double ranks = s.ranks();
  const std::int64_t width = s.of(kind).memory.heads_per_lap;
  const std::int64_t laps_of_layer = (s.units() + width - 1) / width, laps = laps_of_layer * s.layers();
  const std::int64_t may_be_told =
      options.tell ? std::min(laps, laps_to_tell(s.of(kind).work, s.ranks(), options.most_told)) : 0;
  check_memory(kind, s, options.memory_bytes);
  Script script = make_script(kind, s);
  const double steps =
      std::max(ranks * static_cast<double>(script.steps), static_cast<double>(script.transfers));
  // The last lap of a layer may carry fewer heads: it is not played.
  const std::int64_t full_of_layer = s.units() / width, rest = s.units() % width;
  const auto played =
      std::min(full_of_layer * s.layers(),
               std::max<std::int64_t>(1, static_cast<std::int64_t>(options.most_steps / steps)));
  const std::int64_t told = std::min(may_be_told, played);
  Simulation simulation =
      Player(std::move(script), s, options, {played, static_cast<double>(width), full_of_layer, told}).play();
  simulation.laps = laps;
  simulation.laps_told = told;
  if (simulation.stall) return simulation;
  const double full_lap_s = simulation.total_s;
  simulation.total_s =
      simulation.played_s + static_cast<double>(full_of_layer * s.layers() - played) * full_lap_s;
  if (rest > 0) {
    const double of_full = price_lap_s(kind, s, static_cast<double>(width));
    const double share = of_full > 0 ? price_lap_s(kind, s, static_cast<double>(rest)) / of_full : 0;
    simulation.total_s += static_cast<double>(s.layers()) * share * full_lap_s;
  }
  simulation.total_s += s.calls_s(kind);
  for (const Faults::Stop& stop : options.faults.stops) {
    if (stop.at_s >= simulation.total_s) continue;  // it is over by then
    throw InvalidArgument(
        fmt::format("--faults stops rank {} at {}, but what is played of the run ends at {}; stop it earlier",
                    stop.rank, seconds_text(stop.at_s), seconds_text(simulation.played_s)));
  }
  const auto units = static_cast<double>(s.units());
  const double all_keys = units * static_cast<double>(s.problem().kv_len * s.key_bytes());
  const double alone =
      s.attend_s(s.of(kind).work.all_pairs, units, all_keys) * static_cast<double>(s.layers());
  simulation.efficiency = alone / (ranks * simulation.total_s);
  return simulation;
}

}  // namespace kvring
