#include "trace/read.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "kvring/error.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;
using What = Operation::What;

constexpr std::int64_t kMostRanks = std::int64_t{1} << 16;
constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
constexpr double kLongest = 1e14;  // microseconds: three years, and nanoseconds of them fit 64 bits

// What is wrong, without the file's name.
[[noreturn]] void refuse(const std::string& what) { throw InputFile(what); }

// A part of a foreign value, for a message.
std::string shown(const Json& value) {
  constexpr std::size_t kLongestShown = 40;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object())
    refuse(fmt::format("is {} where an object with \"{}\" must be", shown(object), key));
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("has no \"{}\"", key));
  return *found;
}

std::int64_t integer(const Json& object, const char* key, std::int64_t least, std::int64_t most) {
  const Json& value = member(object, key);
  // What lies above int64 is stored unsigned.
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most));
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    refuse(fmt::format("has \"{}\" {}; it must be a whole number from {} to {}", key, shown(value), least,
                       most));
  return value.get<std::int64_t>();
}

double real(const Json& object, const char* key, double least, double most) {
  const Json& value = member(object, key);
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
    refuse(fmt::format("has \"{}\" {}; it must be a number from {} to {}", key, shown(value), least, most));
  return value.get<double>();
}

std::int64_t time(const Json& object, const char* key, double least = 0) {
  return std::llround(real(object, key, least, kLongest) * 1e3);
}

std::string text(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_string()) refuse(fmt::format("has \"{}\" {}; it must be a string", key, shown(value)));
  return value.get<std::string>();
}

bool boolean(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_boolean()) refuse(fmt::format("has \"{}\" {}; it must be true or false", key, shown(value)));
  return value.get<bool>();
}

Operation::Tiles tiles(const Json& object) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;  // so that sums over ranks and operations fit
  return {integer(object, "tiles_full", 0, kMost), integer(object, "tiles_partial", 0, kMost),
          integer(object, "tiles_skipped", 0, kMost)};
}

What operation_kind(const Json& args) {
  constexpr std::array kAll = {What::kSend,     What::kReceive,      What::kAttend,
                               What::kPack,     What::kMerge,        What::kFinish,
                               What::kWaitLate, What::kWaitTransfer, What::kWaitSend};
  const std::string name = text(args, "what");
  for (const What what : kAll)
    if (name == operation_name(what)) return what;
  refuse(fmt::format(
      "has \"what\" {}; it must be send, receive, attend, pack, merge, finish, wait_late, wait_transfer "
      "or wait_send",
      shown(member(args, "what"))));
}

// Traces of before there were other kinds have none.
Cargo cargo(const Json& args) {
  if (!args.contains("cargo")) return Cargo::kBlock;
  const std::string name = text(args, "cargo");
  for (const Cargo cargo : kCargos)
    if (name == cargo_name(cargo)) return cargo;
  refuse(fmt::format("has \"cargo\" {}; it must be block, queries, partials or rows", shown(args["cargo"])));
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
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputFile(fmt::format("{}: cannot be opened", path));
  try {
    return understand(Json::parse(file));
  } catch (const std::ios_base::failure&) {
    throw InputFile(fmt::format("{}: cannot be read; is it a file?", path));
  } catch (const InputFile& error) {
    throw InputFile(fmt::format("{}: not a trace of kvring: {}", path, error.what()));
  } catch (const Json::exception& error) {
    throw InputFile(fmt::format("{}: not a trace of kvring: {}", path, error.what()));
  }
}

}  // namespace kvring
