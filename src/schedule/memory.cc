#include "schedule/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kvring/error.h"
#include "schedule/work_cut.h"

namespace kvring {
namespace {

// Below this a message costs more in latency than it carries: 1 MiB is 80 us at 100 Gbit/s.
constexpr std::int64_t kEfficientMessage = 1 << 20;

std::int64_t tensor_bytes(const Problem& p, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                          DType dtype) {
  return p.batch * tokens * heads * dim * static_cast<std::int64_t>(dtype_bytes(dtype));
}

const Shard& shard_of(const Layout& layout, int rank) {
  return layout.shards[static_cast<std::size_t>(rank)];
}

// The most bytes per KV unit of any block that rank 0 <= r < P may hold; blocks of a ring differ by a tile or
// two.
std::int64_t largest_block(const MemoryInputs& c) {
  std::int64_t bytes = 0;
  for (const Shard& shard : c.layouts.kv.shards) bytes = std::max(bytes, unit_block_bytes(c.problem, shard));
  return bytes;
}

// The smallest ring, up to 1,024 ranks and within a sixteenth, whose every rank would fit with that many KV
// units per lap; 0 for none.
int ranks_that_fit(const MemoryInputs& c, std::int64_t heads_per_lap, std::int64_t limit) {
  if (c.layouts.q.spec.kind == LayoutKind::kCustom) return 0;
  for (int ranks = static_cast<int>(c.layouts.q.shards.size()) + 1; ranks <= 1024; ranks += 1 + ranks / 16) {
    const Layouts layouts = make_layouts(c.layouts.q.spec, c.problem, ranks);
    const MemoryInputs larger{c.problem, layouts, c.threads, c.passes_pointers};
    if (fullest_rank(larger, heads_per_lap).second <= limit) return ranks;
  }
  return 0;
}

}  // namespace

std::int64_t ledger_total(const Ledger& ledger) {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

WorkspaceSizes workspace_sizes(const MemoryInputs& c, int rank, std::int64_t heads_per_lap) {
  WorkspaceSizes sizes;
  sizes.slots = c.layouts.q.shards.size() == 1 ? 1 : 2;
  const std::int64_t own = unit_block_bytes(c.problem, shard_of(c.layouts.kv, rank));
  sizes.slot = heads_per_lap * (c.passes_pointers || sizes.slots == 1 ? own : largest_block(c));
  sizes.units = heads_per_lap;
  sizes.accumulators = accumulator_bytes({c.problem, shard_of(c.layouts.q, rank), heads_per_lap,
                                          static_cast<int>(c.layouts.q.shards.size()), c.threads});
  sizes.scratch = scratch_bytes(c.problem);
  return sizes;
}

Ledger memory_ledger(const MemoryInputs& c, int rank, std::int64_t heads_per_lap) {
  const Problem& p = c.problem;
  const std::int64_t q = shard_of(c.layouts.q, rank).tokens();
  const std::int64_t kv = shard_of(c.layouts.kv, rank).tokens();
  const WorkspaceSizes sizes = workspace_sizes(c, rank, heads_per_lap);
  Ledger ledger = {
      {"q", tensor_bytes(p, q, p.q_heads, p.head_dim, p.q_dtype)},
      {"k", tensor_bytes(p, kv, p.kv_heads, p.head_dim, p.kv_dtype)},
      {"v", tensor_bytes(p, kv, p.kv_heads, p.value_dim, p.kv_dtype)},
      {"out", tensor_bytes(p, q, p.q_heads, p.value_dim, p.out_dtype)},
      {"lse", tensor_bytes(p, q, p.q_heads, 1, DType::kF32)},
      {"accumulators", sizes.accumulators},
  };
  for (int i = 0; i < sizes.slots; ++i) ledger.emplace_back(fmt::format("block_{}", i), sizes.slot);
  ledger.emplace_back("scratch", sizes.scratch * c.threads);
  return ledger;
}

std::pair<int, std::int64_t> fullest_rank(const MemoryInputs& c, std::int64_t heads_per_lap) {
  std::pair<int, std::int64_t> fullest{0, 0};
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // ranks with as many tokens hold as much
  for (int rank = 0; rank < static_cast<int>(c.layouts.q.shards.size()); ++rank) {
    if (!seen.emplace(shard_of(c.layouts.q, rank).tokens(), shard_of(c.layouts.kv, rank).tokens()).second)
      continue;
    const std::int64_t held = ledger_total(memory_ledger(c, rank, heads_per_lap));
    if (held > fullest.second) fullest = {rank, held};
  }
  return fullest;
}

std::int64_t units_per_message(std::int64_t unit_bytes, std::int64_t all) noexcept {
  return std::clamp<std::int64_t>(kEfficientMessage / std::max<std::int64_t>(unit_bytes, 1), 1, all);
}

std::int64_t fitting_heads_per_lap(const MemoryInputs& c, const RingOptions& options) {
  const std::int64_t units = c.problem.batch * c.problem.kv_heads;
  if (options.heads_per_lap > 0) return std::min(options.heads_per_lap, units);
  std::int64_t chosen = units_per_message(largest_block(c), units);
  if (options.rank_memory == 0) return chosen;
  while (chosen > 1 && fullest_rank(c, chosen).second > options.rank_memory) --chosen;
  return chosen;
}

std::int64_t choose_heads_per_lap(const MemoryInputs& c, const RingOptions& options) {
  const std::int64_t chosen = fitting_heads_per_lap(c, options);
  if (options.rank_memory == 0) return chosen;
  const auto [rank, held] = fullest_rank(c, chosen);
  if (held <= options.rank_memory) return chosen;
  const int ranks = ranks_that_fit(c, chosen, options.rank_memory);
  throw OutOfBudget(fmt::format(
      "rank {} of {} would hold {} bytes, more than the limit of {} per rank; {}", rank,
      c.layouts.q.shards.size(), held, options.rank_memory,
      (ranks > 0 ? fmt::format("{} ranks would fit", ranks) : "no ring of up to 1024 ranks would fit") +
          (options.heads_per_lap > 1 ? fmt::format(" with heads_per_lap {}", chosen) : "")));
}

}  // namespace kvring
