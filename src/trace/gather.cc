#include "trace/gather.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/recorder.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;

// The same program writes and reads this, so it needs no names.
Json pack(const Operation& o) {
  const auto optional = [](const std::optional<Operation::Clock::time_point>& time) {
    return time ? Json(nanoseconds(*time)) : Json();
  };
  return {static_cast<int>(o.what),
          o.block,
          o.call,
          o.lap,
          o.step,
          o.peer,
          o.bytes,
          nanoseconds(o.posted),
          optional(o.began),
          optional(o.done),
          o.tiles.full,
          o.tiles.partial,
          o.tiles.skipped,
          static_cast<int>(o.cargo),
          o.queries};
}

Operation unpack(const Json& json) {
  const auto optional = [](const Json& time) -> std::optional<Operation::Clock::time_point> {
    if (time.is_null()) return std::nullopt;
    return at_nanoseconds(time.get<std::int64_t>());
  };
  return {.what = static_cast<Operation::What>(json[0].get<int>()),
          .cargo = static_cast<Cargo>(json[13].get<int>()),
          .block = json[1],
          .queries = json[14],
          .call = json[2],
          .lap = json[3],
          .step = json[4],
          .peer = json[5],
          .bytes = json[6],
          .posted = at_nanoseconds(json[7].get<std::int64_t>()),
          .began = optional(json[8]),
          .done = optional(json[9]),
          .tiles = {json[10], json[11], json[12]}};
}

std::string pack(const MyTrace& mine) {
  Json barriers = Json::array();
  for (const BarrierTimes& b : mine.barriers) barriers.push_back({b.entered, b.left});
  Json operations = Json::array();
  for (const Operation& o : mine.operations) operations.push_back(pack(o));
  const Operation::Tiles& t = mine.tiles;
  const std::vector<std::uint8_t> bytes =
      Json::to_cbor({host_name(), clock_name(), barriers, Json{t.full, t.partial, t.skipped}, operations});
  return {bytes.begin(), bytes.end()};
}

RankTrace unpack(const std::string& text, RankClock& clock) {
  const Json json = Json::from_cbor(text.begin(), text.end());
  RankTrace rank;
  rank.host = json[0];
  clock.clock = json[1];
  for (const Json& b : json[2]) clock.barriers.push_back({b[0], b[1]});
  rank.tiles = {json[3][0], json[3][1], json[3][2]};
  for (const Json& o : json[4]) rank.operations.push_back(unpack(o));
  return rank;
}

void shift(RankTrace& rank, std::int64_t by) {
  for (Operation& o : rank.operations) {
    const std::chrono::nanoseconds delta(by);
    o.posted += delta;
    if (o.began) *o.began += delta;
    if (o.done) *o.done += delta;
  }
}

void end_what_is_under_way(RankTrace& rank) {
  Operation::Clock::time_point last{};
  for (const Operation& o : rank.operations) last = std::max({last, o.posted, o.done.value_or(o.posted)});
  for (Operation& o : rank.operations)
    if (!o.done) o.done = last;
}

}  // namespace

std::vector<RankTrace> gather_traces(Transport& transport, const MyTrace& mine) {
  const std::vector<std::string> all = transport.allgather(pack(mine), "the trace");
  std::vector<RankTrace> ranks;
  if (transport.rank() != 0) return ranks;
  std::vector<RankClock> clocks(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) ranks.push_back(unpack(all[r], clocks[r]));
  const std::vector<ClockOffset> offsets = clock_offsets(clocks);
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    shift(ranks[r], -offsets[r].offset);
    end_what_is_under_way(ranks[r]);
    ranks[r].clock_error_s = static_cast<double>(offsets[r].error) * 1e-9;
    for (const Operation& o : ranks[r].operations)
      start = std::min({start, nanoseconds(o.posted), span_of(o).begin});
  }
  for (RankTrace& rank : ranks) shift(rank, -start);
  return ranks;
}

}  // namespace kvring
