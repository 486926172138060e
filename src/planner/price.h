// What each schedule would cost: the sum over its steps of computing or transfer, whichever takes longer,
// since each step's transfers are under way while it computes, and ranks wait for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/setting.h"

namespace kvring {

// Times are of all laps and layers, but those per step, which are of the longest step of one lap.
struct Price {
  std::string name;          // "ring", "all-gather", "pass-q", "ulysses", "tree", "tensor-parallel"
  std::string not_possible;  // why it cannot serve this workload, and what would; then the rest is 0
  std::string not_here;      // why this build cannot run it; empty where it can
  double compute_s_per_step = 0;
  double transfer_s_per_step = 0;
  double exposed_s = 0;  // transfer that no computation hides
  double total_s = 0;
  std::int64_t bytes_per_hop = 0;  // the largest message
  Ledger memory;                   // of the fullest rank: attention, then the model
  bool fits = false;

  bool usable() const noexcept { return not_possible.empty() && fits; }
  bool runs_here() const noexcept { return usable() && not_here.empty(); }
};

// Prices this close are as good as equal, since none is more exact: the ring, or what this build has, is
// taken. A preference may cost so much, beside what the prices themselves are wrong by.
inline constexpr double kTie = 1.02;

// All of them, the ring first. `tensor-parallel` is no schedule of kvring: attention with heads cut over the
// same ranks and the sum of their outputs, by closed forms.
std::vector<Price> price_all(const Setting& setting);
Price price_schedule(ScheduleKind kind, const Setting& setting);
// One lap of a possible schedule with `units` KV heads.
double price_lap_s(ScheduleKind kind, const Setting& setting, double units);

}  // namespace kvring
