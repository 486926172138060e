// What one rank holds, by name: the formula that the planner prices and that the ledger must equal to the
// byte.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

using Ledger = std::vector<std::pair<std::string, std::int64_t>>;
std::int64_t ledger_total(const Ledger& ledger);

// Everything that decides sizes.
struct MemoryInputs {
  const Problem& problem;
  const Layouts& layouts;
  int threads;
  bool passes_pointers;
};

struct WorkspaceSizes {
  std::int64_t units = 0;         // KV units per lap
  std::int64_t slot = 0;          // one packed block
  int slots = 0;                  // 2, or 1 for a ring of one
  std::int64_t accumulators = 0;  // states of all panels of one lap, see work_cut.h
  std::int64_t scratch = 0;       // of one thread, queries and tile
  std::int64_t total(int threads) const noexcept { return slots * slot + accumulators + threads * scratch; }
};
WorkspaceSizes workspace_sizes(const MemoryInputs& c, int rank, std::int64_t heads_per_lap);

// Names: q, k, v, out, lse (this rank's tensors), accumulators, block_0, block_1, scratch.
Ledger memory_ledger(const MemoryInputs& c, int rank, std::int64_t heads_per_lap);

// The rank that would hold most, and how much.
std::pair<int, std::int64_t> fullest_rank(const MemoryInputs& c, std::int64_t heads_per_lap);

// As few KV units as make a message of a megabyte, at most `all`, where the block of one has `unit_bytes`.
std::int64_t units_per_message(std::int64_t unit_bytes, std::int64_t all) noexcept;

// KV units per lap: what `options` asks for, or as few as keep a block of a megabyte, fewer to fit the limit
// if that is possible at all. The same on every rank that is given the same limit and threads.
std::int64_t fitting_heads_per_lap(const MemoryInputs& c, const RingOptions& options);

// The same, and it fits. Throws OutOfBudget naming the bytes and the ranks that would fit.
std::int64_t choose_heads_per_lap(const MemoryInputs& c, const RingOptions& options);

}  // namespace kvring
