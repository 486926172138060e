// What all ranks of a run did, on one clock. A real run and a simulated one look the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvring/operation.h"

namespace kvring {

inline constexpr int kTraceSchemaVersion = 1;

struct TraceInfo {
  std::string version;                                                // of kvring
  nlohmann::ordered_json problem = nlohmann::ordered_json::object();  // every parameter by name
  std::string problem_text;                                           // in a line, for people
  std::string layout, schedule, transport;
  int threads = 1;  // per rank
  bool simulated = false;
};

struct RankTrace {
  std::string host;
  double clock_error_s = 0;  // by how much the times may be off against those of rank 0
  Operation::Tiles tiles;    // of the run, with the blocks that this rank needed not attend at all
  // In the order in which they began on this rank. Times are durations since the run's start, as
  // time_since_epoch(), and not negative. No two computations or waits overlap.
  std::vector<Operation> operations;
};

struct Trace {
  TraceInfo info;
  std::vector<RankTrace> ranks;  // by rank
};

enum class Track : std::uint8_t { kCompute, kWait, kReceive, kSend };
const char* track_name(Track track) noexcept;  // "compute", "wait", "receive", "send"
Track track_of(Operation::What what) noexcept;

// The time that an operation takes up: a send from when its block was here, a receive from when it was posted
// or, if that was before, announced. Nanoseconds since the run's start.
struct Span {
  std::int64_t begin = 0, end = 0;
};
Span span_of(const Operation& operation);  // one that is under way is over at once
std::int64_t nanoseconds(Operation::Clock::time_point time);
Operation::Clock::time_point at_nanoseconds(std::int64_t time);

}  // namespace kvring
