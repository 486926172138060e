#include "trace/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "trace/summary.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;

// Events of one track must not overlap. Transfers may, so they take as many lanes as they need.
constexpr int kLanes = 1000;  // between the first lanes of two tracks
int thread_of(Track track, int lane) { return static_cast<int>(track) * kLanes + lane; }

struct Event {
  const Operation* operation = nullptr;
  Span span;
  int lane = 0;
};

// Both ends of a message.
struct Message {
  int from = 0, to = 0;
  const Event* send = nullptr;
  const Event* receive = nullptr;
};

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

std::string event_name(const Operation& o) {
  switch (o.what) {
    case Operation::What::kSend:
      return fmt::format("{} {} to rank {}", cargo_name(o.cargo), o.block, o.peer);
    case Operation::What::kReceive:
      return fmt::format("{} {} from rank {}", cargo_name(o.cargo), o.block, o.peer);
    case Operation::What::kAttend:
      if (o.queries >= 0) return fmt::format("queries {} attend block {}", o.queries, o.block);
      return fmt::format("attend block {}", o.block);
    case Operation::What::kMerge:
      return fmt::format("merge {} {}", cargo_name(o.cargo), o.block);
    case Operation::What::kPack:
    case Operation::What::kFinish:
      return operation_name(o.what);
    case Operation::What::kWaitLate:
      return fmt::format("wait: rank {} is late", o.peer);
    case Operation::What::kWaitTransfer:
      return "wait: transfer";
    case Operation::What::kWaitSend:
      return fmt::format("wait: rank {} holds {} {}", o.peer, cargo_name(o.cargo), o.block);
  }
  return "unknown";
}

Json arguments(const Operation& o) {
  Json args = {{"what", operation_name(o.what)},
               {"cargo", cargo_name(o.cargo)},
               {"block", o.block},
               {"call", o.call},
               {"lap", o.lap},
               {"step", o.step}};
  if (o.queries >= 0) args["queries"] = o.queries;
  if (o.peer >= 0) args["peer"] = o.peer;
  const Track track = track_of(o.what);
  if (track == Track::kSend || track == Track::kReceive) {
    args["bytes"] = o.bytes;
    args["posted_us"] = microseconds(nanoseconds(o.posted));
    if (o.began) args["began_us"] = microseconds(nanoseconds(*o.began));
  }
  if (o.what == Operation::What::kAttend) {
    args["tiles_full"] = o.tiles.full;
    args["tiles_partial"] = o.tiles.partial;
    args["tiles_skipped"] = o.tiles.skipped;
  }
  return args;
}

std::vector<Event> events_of(const RankTrace& rank) {
  std::vector<Event> events;
  for (const Operation& o : rank.operations) events.push_back({&o, span_of(o), 0});
  std::ranges::stable_sort(events, {}, [](const Event& e) { return e.span.begin; });
  std::map<Track, std::vector<std::int64_t>> ends;  // by lane
  for (Event& e : events) {
    std::vector<std::int64_t>& lanes = ends[track_of(e.operation->what)];
    const auto lane = std::ranges::find_if(lanes, [&](std::int64_t end) { return end <= e.span.begin; });
    e.lane = static_cast<int>(lane - lanes.begin());
    if (lane == lanes.end())
      lanes.push_back(e.span.end);
    else
      *lane = e.span.end;
  }
  return events;
}

// Those of which both ends are there.
std::vector<Message> match(const std::vector<std::vector<Event>>& events) {
  using Key = std::tuple<int, int, std::uint32_t, std::uint32_t, int, int, Cargo>;
  std::map<Key, Message> messages;
  for (std::size_t r = 0; r < events.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const Event& e : events[r]) {
      const Operation& o = *e.operation;
      const bool send = o.what == Operation::What::kSend;
      if (!send && o.what != Operation::What::kReceive) continue;
      const int from = send ? rank : o.peer, to = send ? o.peer : rank;
      Message& message = messages[{from, to, o.call, o.lap, o.step, o.block, o.cargo}];
      message.from = from;
      message.to = to;
      (send ? message.send : message.receive) = &e;
    }
  }
  std::vector<Message> whole;
  for (const auto& [key, message] : messages)
    if (message.send && message.receive) whole.push_back(message);
  return whole;
}

class Writer {
 public:
  explicit Writer(const std::function<void(std::string_view)>& sink) : sink_(sink) {}

  void write(const Trace& trace) {
    sink_("{\"traceEvents\": [");
    std::vector<std::vector<Event>> events;
    for (const RankTrace& rank : trace.ranks) events.push_back(events_of(rank));
    for (std::size_t r = 0; r < events.size(); ++r) {
      name_rank(static_cast<int>(r), trace.ranks[r], events[r]);
      for (const Event& e : events[r]) slice(static_cast<int>(r), e);
    }
    const std::vector<Message> messages = match(events);
    for (std::size_t i = 0; i < messages.size(); ++i) flow(i, messages[i]);
    count_bytes(static_cast<int>(trace.ranks.size()), messages);
    sink_("\n],\n\"displayTimeUnit\": \"ms\",\n\"otherData\": ");
    sink_(text(about(trace)));
    sink_("}\n");
  }

 private:
  static std::string text(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void add(const Json& event) {
    sink_(first_ ? "\n" : ",\n");
    first_ = false;
    sink_(text(event));
  }

  void name(const char* what, int pid, std::optional<int> tid, const Json& args) {
    Json event = {{"ph", "M"}, {"name", what}, {"pid", pid}};
    if (tid) event["tid"] = *tid;
    event["args"] = args;
    add(event);
  }

  void name_rank(int rank, const RankTrace& trace, const std::vector<Event>& events) {
    name("process_name", rank, {}, {{"name", fmt::format("rank {} on {}", rank, trace.host)}});
    name("process_sort_index", rank, {}, {{"sort_index", rank}});
    std::map<int, std::string> threads;
    for (const Event& e : events) {
      const Track track = track_of(e.operation->what);
      threads[thread_of(track, e.lane)] =
          e.lane == 0 ? track_name(track) : fmt::format("{} {}", track_name(track), e.lane + 1);
    }
    for (const auto& [tid, thread] : threads) {
      name("thread_name", rank, tid, {{"name", thread}});
      name("thread_sort_index", rank, tid, {{"sort_index", tid}});
    }
  }

  static Json at(const char* phase, int pid, const Event& e, std::int64_t time) {
    const Track track = track_of(e.operation->what);
    return {{"ph", phase}, {"pid", pid}, {"tid", thread_of(track, e.lane)}, {"ts", microseconds(time)}};
  }

  void slice(int rank, const Event& e) {
    Json event = at("X", rank, e, e.span.begin);
    event["dur"] = microseconds(e.span.end - e.span.begin);
    event["cat"] = track_name(track_of(e.operation->what));
    event["name"] = event_name(*e.operation);
    event["args"] = arguments(*e.operation);
    add(event);
  }

  // An arrow belongs to the slices that it begins and ends in.
  void flow(std::size_t id, const Message& m) {
    const Span& to = m.receive->span;
    for (const bool start : {true, false}) {
      const std::int64_t inside = std::clamp(m.send->span.begin, to.begin, std::max(to.begin, to.end - 1));
      Json event = start ? at("s", m.from, *m.send, m.send->span.begin) : at("f", m.to, *m.receive, inside);
      event["id"] = id;
      event["cat"] = "message";
      event["name"] = fmt::format("block {}", m.send->operation->block);
      if (!start) event["bp"] = "e";
      add(event);
    }
  }

  // Of all messages, from when the sender had them to when they had arrived.
  void count_bytes(int pid, const std::vector<Message>& messages) {
    std::map<std::int64_t, std::int64_t> changes;
    for (const Message& m : messages) {
      if (m.send->span.begin >= m.receive->span.end) continue;
      changes[m.send->span.begin] += m.send->operation->bytes;
      changes[m.receive->span.end] -= m.send->operation->bytes;
    }
    name("process_name", pid, {}, {{"name", "all ranks"}});
    name("process_sort_index", pid, {}, {{"sort_index", -1}});
    std::int64_t bytes = 0;
    for (const auto& [time, change] : changes) {
      if (change == 0) continue;
      bytes += change;
      add({{"ph", "C"},
           {"pid", pid},
           {"name", "bytes in flight"},
           {"ts", microseconds(time)},
           {"args", {{"bytes", bytes}}}});
    }
  }

  static Json about(const Trace& trace) {
    const TraceInfo& info = trace.info;
    Json ranks = Json::array();
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      const RankTrace& rank = trace.ranks[r];
      ranks.push_back({{"rank", r},
                       {"host", rank.host},
                       {"clock_error_s", rank.clock_error_s},
                       {"tiles_full", rank.tiles.full},
                       {"tiles_partial", rank.tiles.partial},
                       {"tiles_skipped", rank.tiles.skipped}});
    }
    return {{"schema_version", kTraceSchemaVersion},
            {"version", info.version},
            {"problem", info.problem},
            {"problem_text", info.problem_text},
            {"ranks", trace.ranks.size()},
            {"layout", info.layout},
            {"schedule", info.schedule},
            {"transport", info.transport},
            {"threads", info.threads},
            {"simulated", info.simulated},
            {"wall_s", summarize(trace).wall_s},
            {"per_rank", ranks}};
  }

  const std::function<void(std::string_view)>& sink_;
  bool first_ = true;
};

}  // namespace

void write_trace(const Trace& trace, const std::function<void(std::string_view)>& sink) {
  Writer(sink).write(trace);
}

}  // namespace kvring
