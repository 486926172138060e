#include "trace/summary.h"

#include <algorithm>

namespace kvring {
namespace {

RankSummary summarize(const RankTrace& rank, double wall_s) {
  RankSummary sum;
  for (const Operation& o : rank.operations) {
    const Span span = span_of(o);
    const double s = static_cast<double>(span.end - span.begin) * 1e-9;
    if (o.what == Operation::What::kWaitLate)
      sum.exposed_late_s += s;
    else if (o.what == Operation::What::kWaitTransfer)
      sum.exposed_transfer_s += s;
    else if (o.what == Operation::What::kWaitSend)
      sum.exposed_send_s += s;
    else if (track_of(o.what) == Track::kCompute)
      sum.busy_s += s;
  }
  const double exposed_s = sum.exposed_late_s + sum.exposed_transfer_s + sum.exposed_send_s;
  sum.idle_s = std::max(0.0, wall_s - sum.busy_s - exposed_s);
  sum.efficiency = wall_s > 0 ? sum.busy_s / wall_s : 1;
  return sum;
}

}  // namespace

TimeUnit unit_for(double seconds) {
  if (seconds >= 1) return {1, "s"};
  if (seconds >= 1e-3) return {1e-3, "ms"};
  return {1e-6, "us"};
}

TraceSummary summarize(const Trace& trace) {
  std::int64_t end = 0;
  for (const RankTrace& rank : trace.ranks) {
    for (const Operation& o : rank.operations) {
      const Track track = track_of(o.what);
      if (track == Track::kCompute || track == Track::kWait) end = std::max(end, span_of(o).end);
    }
  }
  TraceSummary summary;
  summary.wall_s = static_cast<double>(end) * 1e-9;
  for (const RankTrace& rank : trace.ranks) {
    summary.ranks.push_back(summarize(rank, summary.wall_s));
    summary.efficiency += summary.ranks.back().efficiency / static_cast<double>(trace.ranks.size());
  }
  return summary;
}

}  // namespace kvring
