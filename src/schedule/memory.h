// What one rank holds, by name: the formula that the planner prices and that the ledger must equal to the
// byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvring/operation.h"
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
  ScheduleKind schedule = ScheduleKind::kRing;
  // Bytes of the keys and values that this rank keeps packed for many calls; -1: each call brings k and v,
  // and they are packed anew.
  std::int64_t kept_bytes = -1;
};

// Places for parcels of one kind. Each takes one after the other, or is that of one owner.
struct Slots {
  std::vector<std::int64_t> bytes;  // of each
  bool by_owner = false;            // slot r takes what is about rank r
  std::int64_t total() const noexcept;
};

struct CargoSlots {
  Slots own;       // for what this rank packs or computes; accumulators at work, where they are partials
  Slots arriving;  // none: what arrives takes the slots of its own kind in turn, or is a pointer
};

struct WorkspaceSizes {
  std::int64_t units = 0;  // KV units per lap
  int meetings = 0;        // in which queries meet their keys, see work_cut.h
  std::array<CargoSlots, std::size(kCargos)> slots;
  std::int64_t scratch = 0;  // of one thread, queries and tile

  const CargoSlots& of(Cargo cargo) const noexcept { return slots[static_cast<std::size_t>(cargo)]; }
  CargoSlots& of(Cargo cargo) noexcept { return slots[static_cast<std::size_t>(cargo)]; }
  std::int64_t total(int threads) const noexcept;
};
WorkspaceSizes workspace_sizes(const MemoryInputs& c, int rank, std::int64_t heads_per_lap);

// Names: q, k, v (or, kept packed, cache), out, lse (this rank's tensors), accumulators, scratch, and for
// parcels, as the schedule has them: block_0, block_1, gathered_blocks, queries_0, queries_1,
// gathered_queries, partials or partials_0, rows_0, rows_1, arriving_rows_0.
Ledger memory_ledger(const MemoryInputs& c, int rank, std::int64_t heads_per_lap);

// The rank that would hold most, and how much.
std::pair<int, std::int64_t> fullest_rank(const MemoryInputs& c, std::int64_t heads_per_lap);

// As few KV units as make a message of a megabyte, at most `all`, where the message of one has `unit_bytes`.
std::int64_t units_per_message(std::int64_t unit_bytes, std::int64_t all) noexcept;

// KV units per lap: what `options` asks for, or as few as keep the messages at a megabyte, fewer to fit the
// limit if that is possible at all. The same on every rank that is given the same limit and threads. Throws
// InvalidArgument where the schedule cannot share out what is asked for.
std::int64_t fitting_heads_per_lap(const MemoryInputs& c, const RingOptions& options);

// The same, and it fits. Throws OutOfBudget naming the bytes and the ranks that would fit.
std::int64_t choose_heads_per_lap(const MemoryInputs& c, const RingOptions& options);

}  // namespace kvring
