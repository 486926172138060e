#include "schedule/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kvring/error.h"
#include "schedule/parcel.h"
#include "schedule/step.h"
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

int ranks_of(const MemoryInputs& c) { return static_cast<int>(c.layouts.q.shards.size()); }

// The sizes from which a rank's slots are made.
class Sizes {
 public:
  Sizes(const MemoryInputs& c, int rank) : c_(c), rank_(rank) {}

  std::int64_t parcel(Cargo cargo, int owner, std::int64_t units) const {
    return parcel_bytes(c_.problem, c_.layouts, cargo, owner, units);
  }
  std::int64_t own(Cargo cargo, std::int64_t units) const { return parcel(cargo, rank_, units); }
  // Of the parcels of all ranks; those of a ring differ by a tile or two.
  std::int64_t largest(Cargo cargo, std::int64_t units) const {
    std::int64_t bytes = 0;
    for (int owner = 0; owner < ranks_of(c_); ++owner) bytes = std::max(bytes, parcel(cargo, owner, units));
    return bytes;
  }
  std::int64_t accumulators(int owner, std::int64_t units, int meetings) const {
    return accumulator_bytes({c_.problem, shard_of(c_.layouts.q, owner), units, meetings, c_.threads});
  }
  std::int64_t largest_accumulators(std::int64_t units, int meetings) const {
    std::int64_t bytes = 0;
    for (int owner = 0; owner < ranks_of(c_); ++owner)
      bytes = std::max(bytes, accumulators(owner, units, meetings));
    return bytes;
  }

  // Two slots that parcels pass through on their way around the ring. Where pointers are passed they hold
  // this rank's own parcels of two laps in turn, which the next rank may still read.
  Slots passing(Cargo cargo, std::int64_t units) const {
    const std::int64_t bytes = c_.passes_pointers ? own(cargo, units) : largest(cargo, units);
    return {{bytes, bytes}, false};
  }
  // One slot for each other rank's parcel; none where pointers are passed.
  Slots gathered(Cargo cargo, std::int64_t units) const {
    if (c_.passes_pointers) return {};
    Slots slots{{}, true};
    for (int owner = 0; owner < ranks_of(c_); ++owner)
      slots.bytes.push_back(owner == rank_ ? 0 : parcel(cargo, owner, units));
    return slots;
  }
  Slots one(std::int64_t bytes) const { return {{bytes}, false}; }
  Slots one_arriving(std::int64_t bytes) const { return c_.passes_pointers ? Slots{} : one(bytes); }

 private:
  const MemoryInputs& c_;
  int rank_;
};

// What this rank holds once it attends other than its own block, by schedule.
void set_slots(const MemoryInputs& c, int rank, WorkspaceSizes& to) {
  const Sizes sizes(c, rank);
  const std::int64_t units = to.units;
  const int ranks = ranks_of(c);
  CargoSlots &block = to.of(Cargo::kBlock), &queries = to.of(Cargo::kQueries),
             &partials = to.of(Cargo::kPartials), &rows = to.of(Cargo::kRows);
  const bool kept =
      c.kept_bytes >= 0;  // and a schedule that does not send the own block attends it where it lies
  const bool stays = ranks == 1 || c.schedule == ScheduleKind::kPassQ || c.schedule == ScheduleKind::kTree;
  block.own = sizes.one(kept && stays ? 0 : sizes.own(Cargo::kBlock, units));
  switch (ranks == 1 ? ScheduleKind::kAllGather : c.schedule) {
    case ScheduleKind::kRing:
      block.own = sizes.passing(Cargo::kBlock, units);
      partials.own = sizes.one(sizes.accumulators(rank, units, to.meetings));
      return;
    case ScheduleKind::kAllGather:  // and one rank alone
      if (ranks > 1) block.arriving = sizes.gathered(Cargo::kBlock, units);
      partials.own = sizes.one(sizes.accumulators(rank, units, to.meetings));
      return;
    case ScheduleKind::kPassQ: {
      queries.own = sizes.passing(Cargo::kQueries, units);
      // This rank's own, and two in turn for the queries at hand: one goes home while the next is filled.
      const std::int64_t accumulators = sizes.largest_accumulators(units, to.meetings);
      partials.own = {{accumulators, accumulators, accumulators}, false};
      partials.arriving = sizes.one_arriving(sizes.own(Cargo::kPartials, units));
      return;
    }
    case ScheduleKind::kUlysses: {
      const std::int64_t share = units / ranks;
      block.arriving = sizes.gathered(Cargo::kBlock, share);
      queries.own = sizes.one(sizes.own(Cargo::kQueries, units));
      queries.arriving = sizes.gathered(Cargo::kQueries, share);
      partials.own = sizes.one(sizes.largest_accumulators(share, to.meetings));
      const std::int64_t others = sizes.largest(Cargo::kRows, share);
      rows.own = {{others, others}, false};
      rows.arriving = sizes.one_arriving(sizes.own(Cargo::kRows, share));
      return;
    }
    case ScheduleKind::kTree: {
      queries.own = sizes.one(sizes.own(Cargo::kQueries, units));
      queries.arriving = sizes.gathered(Cargo::kQueries, units);
      partials.own.by_owner = true;
      for (int owner = 0; owner < ranks; ++owner)
        partials.own.bytes.push_back(sizes.accumulators(owner, units, to.meetings));
      if (c.passes_pointers) return;
      partials.arriving.by_owner = true;
      for (int owner = 0; owner < ranks; ++owner)
        partials.arriving.bytes.push_back(sizes.parcel(Cargo::kPartials, owner, units));
      return;
    }
  }
}

void append(Ledger& ledger, const std::string& name, const Slots& slots) {
  if (slots.by_owner) {
    ledger.emplace_back(name, slots.total());
    return;
  }
  for (std::size_t i = 0; i < slots.bytes.size(); ++i)
    ledger.emplace_back(fmt::format("{}_{}", name, i), slots.bytes[i]);
}

// Bytes of the message that a lap is to be worth, of one KV unit.
std::int64_t message_unit_bytes(const MemoryInputs& c) {
  const Sizes sizes(c, 0);
  switch (c.schedule) {
    case ScheduleKind::kPassQ:
      return sizes.largest(Cargo::kQueries, 1);
    case ScheduleKind::kTree:
      return sizes.largest(Cargo::kPartials, 1);
    case ScheduleKind::kRing:
    case ScheduleKind::kAllGather:
    case ScheduleKind::kUlysses:
      break;
  }
  return sizes.largest(Cargo::kBlock, 1);
}

// Laps carry a multiple of this many units.
std::int64_t units_at_least(const MemoryInputs& c) {
  return c.schedule == ScheduleKind::kUlysses ? ranks_of(c) : 1;
}

// The smallest ring, up to 1,024 ranks and within a sixteenth, whose every rank would fit with that many KV
// units per lap; 0 for none.
int ranks_that_fit(const MemoryInputs& c, std::int64_t heads_per_lap, std::int64_t limit) {
  if (c.layouts.q.spec.kind == LayoutKind::kCustom) return 0;
  for (int ranks = ranks_of(c) + 1; ranks <= 1024; ranks += 1 + ranks / 16) {
    if (!schedule_refusal(c.schedule, c.problem, ranks).empty()) continue;
    const Layouts layouts = make_layouts(c.layouts.q.spec, c.problem, ranks);
    const MemoryInputs larger{c.problem, layouts, c.threads, c.passes_pointers, c.schedule, c.kept_bytes};
    if (fullest_rank(larger, std::max(heads_per_lap, units_at_least(larger))).second <= limit) return ranks;
  }
  return 0;
}

}  // namespace

std::int64_t ledger_total(const Ledger& ledger) {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

std::int64_t Slots::total() const noexcept {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t WorkspaceSizes::total(int threads) const noexcept {
  std::int64_t sum = threads * scratch;
  for (const CargoSlots& cargo : slots) sum += cargo.own.total() + cargo.arriving.total();
  return sum;
}

WorkspaceSizes workspace_sizes(const MemoryInputs& c, int rank, std::int64_t heads_per_lap) {
  WorkspaceSizes sizes;
  sizes.units = heads_per_lap;
  sizes.meetings = attends_at_once(c.schedule, ranks_of(c)) ? 1 : ranks_of(c);
  sizes.scratch = scratch_bytes(c.problem);
  set_slots(c, rank, sizes);
  return sizes;
}

Ledger memory_ledger(const MemoryInputs& c, int rank, std::int64_t heads_per_lap) {
  const Problem& p = c.problem;
  const std::int64_t q = shard_of(c.layouts.q, rank).tokens();
  const std::int64_t kv = shard_of(c.layouts.kv, rank).tokens();
  const WorkspaceSizes sizes = workspace_sizes(c, rank, heads_per_lap);
  Ledger ledger = {{"q", tensor_bytes(p, q, p.q_heads, p.head_dim, p.q_dtype)}};
  if (c.kept_bytes >= 0) {
    ledger.emplace_back("cache", c.kept_bytes);
  } else {
    ledger.emplace_back("k", tensor_bytes(p, kv, p.kv_heads, p.head_dim, p.kv_dtype));
    ledger.emplace_back("v", tensor_bytes(p, kv, p.kv_heads, p.value_dim, p.kv_dtype));
  }
  ledger.emplace_back("out", tensor_bytes(p, q, p.q_heads, p.value_dim, p.out_dtype));
  ledger.emplace_back("lse", tensor_bytes(p, q, p.q_heads, 1, DType::kF32));
  ledger.emplace_back("accumulators", sizes.of(Cargo::kPartials).own.total());
  append(ledger, "block", sizes.of(Cargo::kBlock).own);
  append(ledger, "gathered_blocks", sizes.of(Cargo::kBlock).arriving);
  append(ledger, "queries", sizes.of(Cargo::kQueries).own);
  append(ledger, "gathered_queries", sizes.of(Cargo::kQueries).arriving);
  append(ledger, "partials", sizes.of(Cargo::kPartials).arriving);
  append(ledger, "rows", sizes.of(Cargo::kRows).own);
  append(ledger, "arriving_rows", sizes.of(Cargo::kRows).arriving);
  ledger.emplace_back("scratch", sizes.scratch * c.threads);
  return ledger;
}

std::pair<int, std::int64_t> fullest_rank(const MemoryInputs& c, std::int64_t heads_per_lap) {
  std::pair<int, std::int64_t> fullest{0, 0};
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // ranks with as many tokens hold as much
  for (int rank = 0; rank < ranks_of(c); ++rank) {
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
  const std::int64_t units = c.problem.batch * c.problem.kv_heads, least = units_at_least(c);
  if (options.heads_per_lap > 0) {
    if (options.heads_per_lap % least == 0) return std::min(options.heads_per_lap, units);
    throw InvalidArgument(fmt::format(
        "heads_per_lap is {}; schedule {} shares them out over {} ranks, so it must be a multiple of {}",
        options.heads_per_lap, schedule_name(c.schedule), least, least));
  }
  std::int64_t chosen = least * units_per_message(message_unit_bytes(c), units / least);
  if (options.rank_memory == 0) return chosen;
  while (chosen > least && fullest_rank(c, chosen).second > options.rank_memory) chosen -= least;
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
