#include "planner/plan.h"

#include <fmt/format.h>

#include "kvring/error.h"

namespace kvring {
namespace {

int most_ranks(const PlanQuery& query, const Mesh& mesh) {
  if (query.machine.between_nodes) return kMostPlanRanks;
  const int devices = query.ranks_per_node > 0 ? query.ranks_per_node : query.machine.node_ranks();
  return std::max<int>(1, static_cast<int>(devices / mesh.tensor));
}

// The fewest of 1, 2, 4, ... ranks that hold the workload, with any schedule; 0 for none.
int fewest_ranks(const PlanQuery& query, const Mesh& mesh) {
  for (int ranks = 1; ranks <= std::min(kMostPlanRanks, most_ranks(query, mesh)); ranks *= 2) {
    if (fitting_schedule(query.machine, query.workload, {ranks, query.ranks_per_node, mesh})) return ranks;
  }
  return 0;
}

// Degrees of tensor parallelism to try: within a node, and with whole heads.
std::vector<Mesh> meshes(const PlanQuery& query) {
  if (query.mesh) return {*query.mesh};
  std::vector<Mesh> all = {{}};
  const int devices = query.ranks_per_node > 0 ? query.ranks_per_node : query.machine.node_ranks();
  for (std::int64_t tensor = 2; tensor <= devices; tensor *= 2) {
    if (query.workload.problem.kv_heads % tensor == 0) all.push_back({tensor, 1, 1});
  }
  return all;
}

// The fewest devices that hold the workload; less tensor parallelism where that is a tie. Where none do,
// one rank, so that there is something to say.
Placement find_placement(const PlanQuery& query) {
  Placement best{1, query.ranks_per_node, query.mesh.value_or(Mesh())};
  std::int64_t devices = 0;
  for (const Mesh& mesh : meshes(query)) {
    const std::int64_t ranks = fewest_ranks(query, mesh);
    if (ranks == 0 || (devices > 0 && ranks * mesh.tensor >= devices)) continue;
    devices = ranks * mesh.tensor;
    best = {static_cast<int>(ranks), query.ranks_per_node, mesh};
  }
  return best;
}

std::vector<Larger> larger_rings(const PlanQuery& query, const Placement& placement) {
  constexpr int kDoublings = 6;
  constexpr int kMostLarger = 1024;  // prices of a ring take the square of its ranks
  std::vector<Larger> all;
  Placement at = placement;
  for (int i = 0; i < kDoublings; ++i) {
    at.ranks *= 2;
    if (at.ranks > std::min(kMostLarger, most_ranks(query, at.mesh))) break;
    const Setting setting(query.machine, query.workload, at);
    const Price ring = price_schedule(ScheduleKind::kRing, setting);
    all.push_back({at.ranks, ring.total_s, ring.exposed_s, ring.fits});
  }
  return all;
}

}  // namespace

Plan make_plan(const PlanQuery& query) {
  validate(query.workload.problem);
  Plan plan;
  plan.ranks_found = !query.ranks;
  plan.placement = query.ranks ? Placement{*query.ranks, query.ranks_per_node, query.mesh.value_or(Mesh())}
                               : find_placement(query);
  const Setting setting(query.machine, query.workload, plan.placement);
  plan.prices = price_all(setting);
  plan.slice_tokens = setting.slice_queries();
  plan.break_even_slice_tokens = break_even_slice(setting);
  plan.max_context_tokens = longest_context(query.machine, query.workload, plan.placement);
  plan.slowest_hop = setting.network().slowest_hop(static_cast<double>(plan.prices[0].bytes_per_hop));
  if (plan.ranks_found) plan.larger = larger_rings(query, plan.placement);
  plan.choice = choose(query, setting, plan.prices);
  return plan;
}

}  // namespace kvring
