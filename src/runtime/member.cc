#include "runtime/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "kvring/error.h"
#include "layout/checks.h"
#include "problem/support.h"
#include "runtime/agreement.h"
#include "runtime/executor.h"
#include "runtime/failure.h"
#include "runtime/recorder.h"

namespace kvring {
namespace {

int default_threads(const Transport& transport) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / std::max(1, transport.ranks_on_this_host()));
}

void check_layouts(const Problem& problem, const Layouts& layouts, int ranks) {
  for (const auto& [side, layout] : {std::pair("query", &layouts.q), std::pair("key", &layouts.kv)}) {
    if (std::ssize(layout->shards) == ranks) continue;
    throw InvalidArgument(fmt::format("the {} layout is over {} ranks and the transport has {}", side,
                                      layout->shards.size(), ranks));
  }
  check_layout("query", layouts.q, problem.cu_seqlens_q, problem.tile);
  check_layout("key", layouts.kv, problem.cu_seqlens_kv, problem.tile);
}

// Tiles cannot be too many (validate() sees to that), but runs of positions of a caller's own layout can.
void check_pieces(const std::vector<BlockMap>& blocks, const Layout& layout) {
  constexpr std::int64_t kMostPieces = std::int64_t{1} << 20;  // terms that a BinnedSum is good for
  std::int64_t pieces = 0;
  for (const BlockMap& block : blocks) pieces += std::ssize(block.pieces());
  if (layout.tile_aligned || pieces <= kMostPieces) return;
  throw Unsupported(
      fmt::format("the key layout cuts the keys into {} runs of rising positions and {} can be summed; list "
                  "the positions of "
                  "each rank in rising order",
                  pieces, kMostPieces));
}

std::int64_t all_tile_pairs(const ExecutionPlan& plan, ScheduleKind schedule) {
  const Problem& p = plan.problem;
  std::vector<std::int64_t> panels, pieces;
  for (const Shard& queries : plan.layouts.q.shards) panels.push_back(panels_of(p, queries));
  for (const BlockMap& block : plan.blocks) pieces.push_back(std::ssize(block.pieces()));
  return tile_pairs(schedule, plan.rank, p.batch * p.kv_heads, panels, pieces);
}

// All that does not depend on other ranks.
std::unique_ptr<ExecutionPlan> make_plan(const Problem& problem, const Layouts& layouts, RingOptions& options,
                                         const Transport& transport, std::int64_t kept_bytes) {
  validate(problem);
  check_layouts(problem, layouts, transport.size());
  require_supported(problem, layouts, options.schedule);
  if (options.heads_per_lap < 0) {
    throw InvalidArgument(fmt::format("heads_per_lap is {}; it must be 0 or more", options.heads_per_lap));
  }
  if (options.threads < 0)
    throw InvalidArgument(fmt::format("threads is {}; it must be 0 or more", options.threads));
  if (options.rank_memory < 0) {
    throw InvalidArgument(fmt::format("rank_memory is {} bytes; it must be 0 or more", options.rank_memory));
  }
  if (options.threads == 0) options.threads = default_threads(transport);
  auto plan = std::make_unique<ExecutionPlan>();
  plan->problem = problem;
  plan->layouts = layouts;
  plan->rank = transport.rank();
  plan->blocks = make_block_maps(plan->problem, plan->layouts.kv);
  check_pieces(plan->blocks, plan->layouts.kv);
  plan->steps = schedule_steps(options.schedule, problem, layouts, plan->rank);
  const MemoryInputs memory{plan->problem,    plan->layouts, options.threads, transport.passes_pointers(),
                            options.schedule, kept_bytes};
  options.heads_per_lap = choose_heads_per_lap(memory, options);
  plan->laps = make_laps(problem, options.heads_per_lap);
  plan->sizes = workspace_sizes(memory, plan->rank, options.heads_per_lap);
  plan->tile_pairs = all_tile_pairs(*plan, options.schedule);
  return plan;
}

}  // namespace

RingMember::RingMember(const Problem& problem, const Layouts& layouts, const RingOptions& options,
                       Transport& transport, std::int64_t kept_bytes)
    : options_(options), transport_(transport) {
  // Planning computes with floats too: the scale of logits, and its digits that ranks compare.
  const FloatEnvironment environment;
  const std::uint64_t digest = agree(transport_, [&] {
    plan_ = make_plan(problem, layouts, options_, transport_, kept_bytes);
    take_workspace();
    return agreement_fields(problem, layouts, options_);
  });
  plan_->digest = digest;
  const MemoryInputs memory{plan_->problem,    plan_->layouts, options_.threads, transport_.passes_pointers(),
                            options_.schedule, kept_bytes};
  ledger_ = memory_ledger(memory, plan_->rank, options_.heads_per_lap);
}

RingMember::~RingMember() = default;

void RingMember::take_workspace() {
  const auto refuse = [&](const char* what) {
    throw OutOfBudget(
        fmt::format("this machine has not enough {} for rank {}: {} bytes and {} threads; more "
                    "ranks, fewer heads_per_lap or fewer threads need less",
                    what, plan_->rank, plan_->sizes.total(options_.threads), options_.threads));
  };
  try {
    executor_.emplace(*plan_, transport_, options_.threads);
  } catch (const std::bad_alloc&) {
    refuse("memory");
  } catch (const std::system_error&) {
    refuse("threads");
  }
}

void RingMember::attend(const RankTensors& tensors) {
  if (failure_) throw TransportError("this ring failed before: " + *failure_);
  report_ = {};
  report_.rank = plan_->rank;
  report_.tokens = tensors.q.shape[1];
  report_.ledger_bytes = ledger_;
  report_.peak_bytes = ledger_total(ledger_);
  const auto rank = static_cast<std::size_t>(plan_->rank);
  const Layouts& layouts = plan_->layouts;
  try {
    check_tensors(plan_->problem, layouts.q.shards[rank].tokens(), layouts.kv.shards[rank].tokens(), tensors);
    executor_->run(tensors, progress_, report_);
  } catch (...) {
    failure_ = current_failure();
    transport_.fail(*failure_);  // the others must not wait for a rank that gave up
    throw;
  }
}

std::string RingMember::record(const std::string& reason) const {
  return record_json({.rank = plan_->rank,
                      .ranks = transport_.size(),
                      .transport = transport_.name(),
                      .reason = reason,
                      .verdict = transport_.verdict()},
                     executor_->recorder().operations());
}

bool RingMember::bits_invariant() const {
  return plan_->layouts.kv.tile_aligned && plan_->problem.accumulation == Accumulation::kReproducible;
}

}  // namespace kvring
