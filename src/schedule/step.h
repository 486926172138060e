// A schedule is a pure function (problem, layouts, rank) -> steps. The executor runs the steps, the
// planner prices them, the simulator plays them, the trace draws them: they cannot drift apart.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// One step of one lap on one rank. Order within a step: post the receive, post the send, attend, wait
// for the receive.
struct Step {
  std::int32_t step = 0;           // 0 .. P-1 within the lap
  std::int32_t block = -1;         // owner of the block held in this step; -1: nothing arrived, nothing to do
  bool attend = false;             // some query of this rank sees some key of the block
  std::int32_t send_to = -1;       // pass the block on to this rank; -1: it is not needed further
  std::int32_t receive_from = -1;  // receive the next step's block from this rank; -1: none is needed
  std::int32_t receive_block = -1;  // its owner
  friend bool operator==(const Step&, const Step&) = default;
};

// The steps of one lap; every lap of a problem has the same. For each link the sends of one rank and the
// receives of the next match one to one, in order. Throws InvalidArgument when rank, layouts and problem do
// not fit together.
//
// Ring (Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers", arXiv 2310.01889): at step t
// rank r holds the block of rank (r - t) mod P, if any rank from r on needs it. P - 1 hops at most.
std::vector<Step> ring_steps(const Problem& problem, const Layouts& layouts, int rank);
std::vector<Step> schedule_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts, int rank);

// The steps of every rank, one rank after the other. What all ranks need of each other is worked out once: P
// ranks cost P^2, where a call for each would cost P^3.
void for_each_rank_steps(ScheduleKind kind, const Problem& problem, const Layouts& layouts,
                         const std::function<void(int rank, const std::vector<Step>& steps)>& visit);
void for_each_ring_steps(const Problem& problem, const Layouts& layouts,
                         const std::function<void(int rank, const std::vector<Step>& steps)>& visit);

// The heads that one lap carries: KV units kv_begin <= u < kv_end, where unit u is KV head
// u mod kv_heads of batch entry u / kv_heads, with all their query heads.
struct Lap {
  std::int64_t kv_begin = 0;
  std::int64_t kv_end = 0;
};
// All units in laps of `heads_per_lap`, 1 or more; the last may be smaller. Throws InvalidArgument below 1.
std::vector<Lap> make_laps(const Problem& problem, std::int64_t heads_per_lap);

}  // namespace kvring
