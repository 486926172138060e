// How the work of one lap on one rank is cut into jobs for its threads, and what memory that takes.
#pragma once

#include <cstdint>

#include "kvring/layout.h"
#include "kvring/problem.h"

namespace kvring {

// Panels of query rows that share a read of each tile: 192 rows keep a tile of K and V in the second-level
// cache for 4 uses while the panels' accumulators fit beside it.
inline constexpr int kItemPanels = 4;

struct Work {
  const Problem& problem;
  const Shard& queries;
  std::int64_t units;  // KV units of a lap
  int meetings;        // in which the queries meet the keys of a lap; 1: all at once
  int threads;
};
struct WorkCut {
  std::int64_t panels = 0;  // of 48 query rows, of one KV unit
  std::int64_t items = 0;   // of up to kItemPanels panels, of one KV unit
  // Jobs over the keys of a meeting for one item. More than 1 where items alone are too few for the threads:
  // decode. Each has accumulators of its own, merged at the end: exact, so the bits are the same.
  std::int64_t parts = 1;
  // All keys are met at once, and no item is cut: its rows are finished as soon as they have met them, so
  // accumulators are needed for the items at work only, and stay in the cache.
  bool at_once = false;
};
WorkCut cut_work(const Work& work);

// Panels of 48 query rows of a shard, of one KV unit.
std::int64_t panels_of(const Problem& problem, const Shard& queries);

// Panels whose accumulators exist at one time.
std::int64_t panel_states(const Work& work);
std::int64_t accumulator_bytes(const Work& work);
// Of one thread: the packed queries of an item, and the kernel's working memory.
std::int64_t item_query_bytes(const Problem& problem);
std::int64_t scratch_bytes(const Problem& problem);

// The packed block of a shard, of one KV unit.
std::int64_t unit_block_bytes(const Problem& problem, const Shard& shard);

}  // namespace kvring
