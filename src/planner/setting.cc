#include "planner/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvring/error.h"
#include "planner/model.h"
#include "problem/checks.h"
#include "schedule/step.h"

namespace kvring {
namespace {

void divide(std::int64_t& value, std::int64_t degree, const char* what, const char* name) {
  if (value % degree == 0) {
    value /= degree;
    return;
  }
  std::int64_t below = degree;
  while (value % below != 0) --below;
  throw InvalidArgument(fmt::format("--mesh {}={} does not divide the {} {}; {}={} does", name, degree, value,
                                    what, name, below));
}

int ring_ranks_per_node(const Machine& machine, const Placement& placement) {
  const int devices = placement.ranks_per_node > 0 ? placement.ranks_per_node : machine.node_ranks();
  return static_cast<int>(std::max<std::int64_t>(1, devices / placement.mesh.tensor));
}

std::int64_t longest_shard(const Layout& layout) {
  std::int64_t tokens = 0;
  for (const Shard& shard : layout.shards) tokens = std::max(tokens, shard.tokens());
  return tokens;
}

RankMemory memory_of(ScheduleKind kind, const Machine& machine, const Workload& whole, const Workload& share,
                     const Placement& placement, const Layouts& layouts) {
  const std::int64_t queries = longest_shard(layouts.q), keys = longest_shard(layouts.kv);
  RankMemory memory;
  memory.model = model_memory({whole, share, placement.mesh, placement.ranks, queries, keys});
  // Messages between processes are copied; only ranks that are threads of one process pass pointers.
  const MemoryInputs inputs{share.problem, layouts, static_cast<int>(machine.threads.value), false, kind};
  RingOptions options;
  options.rank_memory = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(machine.memory_bytes.value) - ledger_total(memory.model));
  memory.heads_per_lap = fitting_heads_per_lap(inputs, options);
  memory.rank = fullest_rank(inputs, memory.heads_per_lap).first;
  memory.attention = memory_ledger(inputs, memory.rank, memory.heads_per_lap);
  return memory;
}

}  // namespace

Workload ring_share(const Workload& whole, const Mesh& mesh) {
  Workload share = whole;
  divide(share.problem.q_heads, mesh.tensor, "query heads", "tp");
  // Fewer KV heads than tensor parallel ranks are copied.
  if (share.problem.kv_heads > mesh.tensor || mesh.tensor % share.problem.kv_heads != 0)
    divide(share.problem.kv_heads, mesh.tensor, "KV heads", "tp");
  else
    share.problem.kv_heads = 1;
  divide(share.problem.batch, mesh.data, "batch entries", "dp");
  divide(share.layers, mesh.pipeline, "layers", "pp");
  return share;
}

RankMemory ring_memory(const Machine& machine, const Workload& whole, const Placement& placement) {
  const Workload share = ring_share(whole, placement.mesh);
  const Layouts layouts = make_layouts(share.layout, share.problem, placement.ranks);
  return memory_of(ScheduleKind::kRing, machine, whole, share, placement, layouts);
}

std::optional<ScheduleKind> fitting_schedule(const Machine& machine, const Workload& whole,
                                             const Placement& placement) {
  const Workload share = ring_share(whole, placement.mesh);
  const Layouts layouts = make_layouts(share.layout, share.problem, placement.ranks);
  for (const ScheduleKind kind : kSchedules) {
    if (!schedule_refusal(kind, share.problem, placement.ranks).empty()) continue;
    const RankMemory memory = memory_of(kind, machine, whole, share, placement, layouts);
    if (static_cast<double>(memory.total()) <= machine.memory_bytes.value) return kind;
  }
  return {};
}

Setting::Setting(const Machine& machine, const Workload& whole, const Placement& placement)
    : machine_(machine),
      whole_(whole),
      placement_(placement),
      share_(ring_share(whole, placement.mesh)),
      layouts_(make_layouts(share_.layout, share_.problem, placement.ranks)),
      network_(machine, placement.ranks, ring_ranks_per_node(machine, placement)),
      facts_(std::make_shared<Facts>()),
      slice_queries_(longest_shard(layouts_.q)),
      slice_keys_(longest_shard(layouts_.kv)) {}

Setting::Setting(const Machine& machine, const Problem& problem, Layouts layouts, int per_node)
    : machine_(machine),
      whole_{problem, layouts.q.spec, 1, {}},
      placement_{static_cast<int>(layouts.q.shards.size()), per_node, {}},
      share_(whole_),
      layouts_(std::move(layouts)),
      network_(machine, placement_.ranks, per_node),
      facts_(std::make_shared<Facts>()),
      slice_queries_(longest_shard(layouts_.q)),
      slice_keys_(longest_shard(layouts_.kv)) {}

Setting::Setting(const Setting& other, const Machine& machine)
    : machine_(machine),
      whole_(other.whole_),
      placement_(other.placement_),
      share_(other.share_),
      layouts_(other.layouts_),
      network_(machine, placement_.ranks, ring_ranks_per_node(machine, placement_)),
      facts_(other.facts_),
      slice_queries_(other.slice_queries_),
      slice_keys_(other.slice_keys_) {}

const ScheduleFacts& Setting::of(ScheduleKind kind) const {
  std::optional<ScheduleFacts>& facts = (*facts_)[static_cast<std::size_t>(kind)];
  if (!facts)
    facts = {schedule_work(kind, problem(), layouts_, network_.per_node()),
             memory_of(kind, machine_, whole_, share_, placement_, layouts_)};
  return *facts;
}

std::int64_t Setting::key_bytes() const {
  const Problem& p = problem();
  return (p.head_dim + p.value_dim) * static_cast<std::int64_t>(dtype_bytes(p.kv_dtype));
}

namespace {

// Two operations for each dim of a score and each dim of a value, for every query head of a KV head.
double flops_per_pair(const Problem& p) {
  const std::int64_t group = p.q_heads / p.kv_heads;
  return 2.0 * static_cast<double>((p.head_dim + p.value_dim) * group);
}

}  // namespace

double Setting::attend_s(double pairs, double units, double bytes) const {
  return std::max(pairs * units * flops_per_pair(problem()) / machine_.flops(problem().kv_dtype),
                  bytes / machine_.memory_bytes_per_s.value);
}

double Setting::calls_s(ScheduleKind kind) const {
  const ScheduleFacts& facts = of(kind);
  return calls_s(facts.memory.attention, static_cast<double>(units()) * facts.work.accumulator_bytes);
}

double Setting::calls_s(const Ledger& ledger, double accumulator_bytes) const {
  if (!machine_.calls) return 0;
  double keys = 0, rows = accumulator_bytes;
  for (const auto& [name, bytes] : ledger) {
    if (name == "k" || name == "v") keys += static_cast<double>(bytes);
    if (name == "q" || name == "out") rows += static_cast<double>(bytes);
  }
  return static_cast<double>(layers()) *
         (keys / machine_.calls->keys_bytes_per_s.value + rows / machine_.calls->rows_bytes_per_s.value);
}

bool Setting::fits(const Ledger& ledger) const {
  return static_cast<double>(ledger_total(ledger)) <= machine_.memory_bytes.value;
}

std::int64_t smallest_hiding_slice(const StepShape& shape, const HopRates& rates, std::int64_t all_units) {
  const auto hides = [&](double n) {
    const double keys = shape.keys_per_query * n;
    const double units = static_cast<double>(
        units_per_message(static_cast<std::int64_t>(std::ceil(keys * shape.bytes_per_key)), all_units));
    const double compute = shape.density * n * keys * units * shape.flops_per_pair / rates.flops_per_s;
    return compute >= rates.latency_s + keys * units * shape.bytes_per_key / rates.bytes_per_s;
  };
  std::int64_t above = 1;
  while (!hides(static_cast<double>(above)) && above < (std::int64_t{1} << 60)) above *= 2;
  std::int64_t below = above / 2;  // does not hide, or is 0
  while (above - below > 1) {
    const std::int64_t middle = below + (above - below) / 2;
    (hides(static_cast<double>(middle)) ? above : below) = middle;
  }
  return above;
}

std::int64_t break_even_slice(const Setting& s) {
  if (s.ranks() == 1 || s.slice_queries() == 0) return 0;
  const Problem& p = s.problem();
  StepShape shape;
  shape.flops_per_pair = flops_per_pair(p);
  shape.bytes_per_key = static_cast<double>(s.key_bytes());
  shape.keys_per_query = static_cast<double>(p.kv_len) / static_cast<double>(p.q_len);
  // Of a step that has a hop to hide; causal layouts differ in it.
  shape.density = s.work().steps[1].pairs /
                  (static_cast<double>(s.slice_queries()) * static_cast<double>(s.slice_keys()));
  if (!(shape.density > 0)) return 0;
  const Hop hop = s.network().slowest_hop(1);
  // What is hidden is beside computing from beginning to end.
  const Network& network = s.network();
  const double share = network.busy_share(hop.between_nodes);
  return smallest_hiding_slice(
      shape,
      {s.machine().flops(p.kv_dtype), share * network.hop_bytes_per_s(hop.between_nodes),
       network.link(hop.between_nodes).latency_s.value / share},
      s.units());
}

std::int64_t longest_context(const Machine& machine, const Workload& whole, const Placement& placement) {
  const bool alike = whole.problem.q_len == whole.problem.kv_len;
  const auto fits = [&](std::int64_t tiles) {
    Workload longer = whole;
    longer.problem.kv_len = tiles * whole.problem.tile;
    if (alike) longer.problem.q_len = longer.problem.kv_len;
    return static_cast<double>(ring_memory(machine, longer, placement).total()) <= machine.memory_bytes.value;
  };
  std::int64_t below = 0, above = kMaxTiles + 1;  // the first fits or is nothing, the last does not
  while (above - below > 1) {
    const std::int64_t middle = below + (above - below) / 2;
    (fits(middle) ? below : above) = middle;
  }
  return below * whole.problem.tile;
}

}  // namespace kvring
