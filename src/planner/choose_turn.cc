#include "planner/choose_turn.h"

#include <fmt/format.h>

#include "planner/price.h"
#include "planner/text.h"

namespace kvring {

TurnChoice choose_turn(const Machine& machine, const Problem& problem, const Layouts& layouts, int per_node,
                       std::optional<ScheduleKind> wanted) {
  if (wanted) return {*wanted, fmt::format("{}: it was asked for", schedule_name(*wanted))};
  if (layouts.q.shards.size() == 1) return {ScheduleKind::kRing, "ring: one rank alone passes nothing on"};
  Problem unbounded = problem;
  unbounded.window_left = unbounded.window_right = -1;
  const Setting setting(machine, unbounded, layouts, per_node);
  constexpr ScheduleKind kCandidates[] = {ScheduleKind::kRing, ScheduleKind::kPassQ, ScheduleKind::kTree};
  TurnChoice choice;
  double best_s = 0;
  std::string prices;
  for (const ScheduleKind kind : kCandidates) {
    const double total_s = price_schedule(kind, setting).total_s;
    prices += fmt::format("{}{} {}", prices.empty() ? "" : ", ", schedule_name(kind), seconds_text(total_s));
    if (kind != kCandidates[0] && total_s >= best_s) continue;
    choice.schedule = kind;
    best_s = total_s;
  }
  choice.reason = fmt::format("{}: {} new over {} keys would take {}", schedule_name(choice.schedule),
                              count_text(problem.q_len), count_text(problem.kv_len), prices);
  return choice;
}

}  // namespace kvring
