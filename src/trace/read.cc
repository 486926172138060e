#include "trace/read.h"

#include <fmt/format.h>

#include <cmath>

#include "trace/json_members.h"

namespace kvring {
namespace {

using What = Operation::What;

constexpr double kLongest = 1e14;  // microseconds: three years, and nanoseconds of them fit 64 bits

std::int64_t time(const Json& object, const char* key, double least = 0) {
  return std::llround(real(object, key, least, kLongest) * 1e3);
}

Operation::Tiles tiles(const Json& object) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;  // so that sums over ranks and operations fit
  return {integer(object, "tiles_full", 0, kMost), integer(object, "tiles_partial", 0, kMost),
          integer(object, "tiles_skipped", 0, kMost)};
}

Operation operation(const Json& event, int ranks) {
  const Json& args = member(event, "args");
  Operation o{.what = operation_kind(args),
              .cargo = cargo(args),
              .block = static_cast<std::int32_t>(integer(args, "block", 0, ranks - 1)),
              .call = static_cast<std::uint32_t>(integer(args, "call", 0, kMost32)),
              .lap = static_cast<std::uint32_t>(integer(args, "lap", 0, kMost32)),
              .step = static_cast<std::int32_t>(integer(args, "step", 0, kMost32))};
  const std::int64_t begin = time(event, "ts");
  o.posted = at_nanoseconds(begin);
  o.done = at_nanoseconds(begin + time(event, "dur"));
  const Track track = track_of(o.what);
  if (track == Track::kSend || track == Track::kReceive) {
    o.bytes = integer(args, "bytes", 0, std::int64_t{1} << 50);
    o.posted = at_nanoseconds(time(args, "posted_us"));
    if (args.contains("began_us")) o.began = at_nanoseconds(time(args, "began_us"));
  }
  if (track != Track::kCompute) o.peer = static_cast<std::int32_t>(integer(args, "peer", 0, ranks - 1));
  if (o.what == What::kAttend) o.tiles = tiles(args);
  if (args.contains("queries")) o.queries = static_cast<std::int32_t>(integer(args, "queries", 0, ranks - 1));
  return o;
}

Trace about(const Json& json) {
  const Json& other = member(json, "otherData");
  const Json& version = member(other, "schema_version");
  if (version != kTraceSchemaVersion)
    refuse(fmt::format("has schema_version {}; this kvring reads {}", shown(version), kTraceSchemaVersion));
  Trace trace;
  trace.info = {.version = text(other, "version"),
                .problem = member(other, "problem"),
                .problem_text = text(other, "problem_text"),
                .layout = text(other, "layout"),
                .schedule = text(other, "schedule"),
                .transport = text(other, "transport"),
                .threads = static_cast<int>(integer(other, "threads", 0, kMost32)),
                .simulated = boolean(other, "simulated")};
  if (!trace.info.problem.is_object()) refuse("has a \"problem\" that is no object");
  const std::int64_t ranks = integer(other, "ranks", 1, kMostRanks);
  const Json& per_rank = member(other, "per_rank");
  if (!per_rank.is_array() || std::ssize(per_rank) != ranks)
    refuse(fmt::format("has {} ranks, but \"per_rank\" is no list of as many", ranks));
  for (const Json& rank : per_rank)
    trace.ranks.push_back({text(rank, "host"), real(rank, "clock_error_s", 0, kLongest), tiles(rank), {}});
  return trace;
}

Trace understand(const Json& json) {
  Trace trace = about(json);
  const Json& events = member(json, "traceEvents");
  if (!events.is_array()) refuse("has \"traceEvents\" that are no list");
  const int ranks = static_cast<int>(trace.ranks.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    try {
      if (text(events[i], "ph") != "X") continue;
      const auto rank = static_cast<std::size_t>(integer(events[i], "pid", 0, ranks - 1));
      trace.ranks[rank].operations.push_back(operation(events[i], ranks));
    } catch (const InputFile& error) {
      refuse(fmt::format("event {} {}", i, error.what()));
    }
  }
  return trace;
}

}  // namespace

Trace read_trace(const std::string& path) {
  return read_json_file(path, "a trace of kvring", [](const Json& json) { return understand(json); });
}

}  // namespace kvring
