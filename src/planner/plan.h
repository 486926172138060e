// The plan: every schedule's price on so many ranks, and what to do, with the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/price.h"

namespace kvring {

struct PlanQuery {
  Machine machine;
  Workload workload;
  std::optional<int> ranks;  // none: as few as hold it
  int ranks_per_node = 0;    // devices of a node; 0 is the machine's
  std::optional<Mesh> mesh;  // none: without tensor, pipeline and data parallelism, or, where the ranks are
                             // to be found, with as much tensor parallelism as makes the devices fewest
};

// What to do.
struct Choice {
  // A schedule's name; or "one-rank": no ring; "fewer-ranks"; "more-ranks"; "tensor-parallel";
  // "nothing-fits".
  std::string name;
  std::string reason;  // one sentence
  // What to run with this build, where there is something: the choice, or the best that it has.
  std::optional<int> run_ranks;
  std::string run_schedule;
};

// A ring of more ranks.
struct Larger {
  int ranks = 0;
  double total_s = 0;
  double exposed_s = 0;
  bool fits = false;
};

struct Plan {
  Placement placement;
  bool ranks_found = false;  // not given by the query
  std::vector<Price> prices;
  std::int64_t slice_tokens = 0;             // queries of the longest slice
  std::int64_t break_even_slice_tokens = 0;  // 0: nothing to hide
  std::int64_t max_context_tokens = 0;       // of the ring
  Hop slowest_hop;                           // of the ring; seconds 0 where nothing hops
  std::vector<Larger> larger;                // twice, four times, ... the ranks, where they were to be found
  Choice choice;
};

// Throws InvalidArgument or Unsupported for what cannot be.
Plan make_plan(const PlanQuery& query);

// The decision alone, from the prices at hand. `query` says how prices at other ring sizes would be.
Choice choose(const PlanQuery& query, const Setting& setting, const std::vector<Price>& prices);

// The most ranks that a plan is made for.
inline constexpr int kMostPlanRanks = 4096;

}  // namespace kvring
