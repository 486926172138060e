// A schedule is a pure function (problem, layouts, rank) -> steps. The executor runs the steps, the
// planner prices them, the simulator plays them, the trace draws them: they cannot drift apart.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvring/operation.h"
#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// All heads of the lap. Otherwise heads are shared out: a rank's own share of them.
inline constexpr std::int32_t kWholeLap = -1;

struct Parcel {
  Cargo cargo = Cargo::kBlock;
  std::int32_t owner = -1;         // rank whose tokens it is about
  std::int32_t share = kWholeLap;  // rank whose share of the heads it carries
  friend bool operator==(const Parcel&, const Parcel&) = default;
};

struct Transfer {
  Parcel parcel;
  std::int32_t peer = -1;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

// Queries of one rank attend the block of another.
struct Attend {
  std::int32_t queries = -1;  // owner
  std::int32_t block = -1;    // owner
  friend bool operator==(const Attend&, const Attend&) = default;
};

// One step of one lap on one rank. Order within a step: post the sends, post the receives, attend, wait for
// the receives, merge what arrived as partials, finish. What arrives is there from the next step on.
struct Step {
  std::int32_t step = 0;
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;  // of what this rank owns, has received, or has attended, in earlier steps
  std::vector<Attend> attends;  // where queries meet several blocks, these stand together
  std::vector<std::int32_t> finishes;  // owners of queries that have met all their keys
  friend bool operator==(const Step&, const Step&) = default;
};

// The steps of one lap; every lap of a problem has the same. Between any two ranks the sends of the one and
// the receives of the other match one to one, in order, and in the same steps. One rank alone attends its own
// block, whatever the schedule. Throws InvalidArgument when rank, layouts and problem do not fit together,
// and Unsupported where the schedule cannot serve them (see schedule_refusal).
std::vector<Step> schedule_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int rank);

// The steps of every rank, one rank after the other. What all ranks need of each other is worked out once: P
// ranks cost P^2, where a call for each would cost P^3.
void for_each_rank_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                         const std::function<void(int rank, const std::vector<Step>& steps)>& visit);

// Whether a rank meets queries with all their keys at once and finishes their rows as they are summed. With
// other schedules it keeps accumulators of all queries that it meets.
bool attends_at_once(ScheduleKind kind, int ranks) noexcept;

// Why the schedule cannot serve the problem on so many ranks, and what would; empty where it can.
std::string schedule_refusal(ScheduleKind kind, const Problem& problem, int ranks);

// The heads that one lap carries: KV units kv_begin <= u < kv_end, where unit u is KV head
// u mod kv_heads of batch entry u / kv_heads, with all their query heads.
struct Lap {
  std::int64_t kv_begin = 0;
  std::int64_t kv_end = 0;
  std::int64_t units() const noexcept { return kv_end - kv_begin; }
};
// All units in laps of `heads_per_lap`, 1 or more; the last may be smaller. Throws InvalidArgument below 1.
std::vector<Lap> make_laps(const Problem& problem, std::int64_t heads_per_lap);

// (Panel of queries, key tile) pairs that are a rank's to see or to skip in so many KV units, where the ranks
// have so many of each. Where keys stay it is those of this rank that all queries are compared with, and so
// on.
std::int64_t tile_pairs(ScheduleKind kind, int rank, std::int64_t units, std::span<const std::int64_t> panels,
                        std::span<const std::int64_t> tiles);

// The part of a lap that a parcel of that share carries.
Lap share_of(const Lap& lap, std::int32_t share, int ranks) noexcept;

}  // namespace kvring
