#include "cli/simulated_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report.h"
#include "planner/text.h"
#include "planner/tiles.h"
#include "schedule/step.h"
#include "trace/write.h"

namespace kvring::cli {
namespace {

// Those of the attended blocks, and all others as skipped.
void sum_tiles(std::vector<RankTrace>& ranks, ScheduleKind schedule, const Setting& setting,
               std::int64_t laps) {
  const TileCount count(setting.problem(), setting.layouts());
  const std::vector<std::int64_t> panels = count.panels(), tiles = count.tiles();
  const std::int64_t units = laps * setting.of(schedule).memory.heads_per_lap;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Operation::Tiles& sum = ranks[r].tiles;
    for (const Operation& o : ranks[r].operations) {
      sum.full += o.tiles.full;
      sum.partial += o.tiles.partial;
    }
    sum.skipped = tile_pairs(schedule, static_cast<int>(r), units, panels, tiles) - sum.full - sum.partial;
  }
}

TraceInfo info_of(ScheduleKind schedule, const Setting& setting, const Simulation& simulation) {
  TraceInfo info = trace_info(setting.problem());
  info.problem_text += fmt::format(", on {}", setting.machine().name);
  if (simulation.laps_told < simulation.laps)
    info.problem_text += fmt::format(", the first {} of {} laps", count_text(simulation.laps_told),
                                     count_text(simulation.laps));
  info.layout = layout_name(setting.layouts().q.spec.kind);
  info.schedule = schedule_name(schedule);
  info.transport = "simulated";
  info.threads = static_cast<int>(setting.machine().threads.value);
  info.simulated = true;
  return info;
}

}  // namespace

SimulatedTrace::SimulatedTrace(const std::string& path, int ranks)
    : file_(path), ranks_(static_cast<std::size_t>(ranks)) {}

void SimulatedTrace::write(ScheduleKind schedule, const Setting& setting, const Simulation& simulation) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].host = fmt::format("node {}", static_cast<int>(r) / setting.network().per_node());
    std::ranges::stable_sort(ranks_[r].operations, {}, [](const Operation& o) { return span_of(o).begin; });
  }
  sum_tiles(ranks_, schedule, setting, simulation.laps_told);
  const Trace trace{info_of(schedule, setting, simulation), std::move(ranks_)};
  write_trace(trace, [&](std::string_view text) { file_->write(text); });
  file_->commit();
}

}  // namespace kvring::cli
