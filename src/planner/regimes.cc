#include "planner/regimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvring/error.h"
#include "planner/text.h"

namespace kvring {
namespace {

constexpr int kSpeedsPerDecade = 10;
constexpr int kSlicesPerOctave = 2;

// What a link has left beside computing stays the same share.
void set_speed(Link& link, double bytes_per_s) {
  link.computing_bytes_per_s.value *= bytes_per_s / link.bytes_per_s.value;
  link.bytes_per_s.value = bytes_per_s;
}

Machine with_links(const Machine& machine, double bytes_per_s) {
  Machine m = machine;
  set_speed(m.within_node, bytes_per_s);
  if (m.between_nodes) {
    m.within_node.latency_s = m.between_nodes->latency_s;
    set_speed(*m.between_nodes, bytes_per_s);
    m.between_nodes->links = m.ranks_per_node;
  }
  return m;
}

// The fastest schedule; the ring, which is first, where it is as good.
const Price& fastest(const std::vector<Price>& prices) {
  const Price* best = &prices.front();
  for (const Price& price : prices) {
    if (price.name == "tensor-parallel" || !price.not_possible.empty()) continue;
    if (price.total_s < best->total_s) best = &price;
  }
  return prices.front().total_s <= kTie * best->total_s ? prices.front() : *best;
}

int index_of(Regimes& regimes, const Price& price) {
  const auto found = std::find(regimes.names.begin(), regimes.names.end(), price.name);
  const auto index = found - regimes.names.begin();
  if (found == regimes.names.end()) {
    regimes.names.push_back(price.name);
  }
  return static_cast<int>(index);
}

// Slices of whole tiles below one are what they are; ranks then own tokens, not tiles.
Workload with_slices(const PlanQuery& query, const Placement& placement, std::int64_t slice) {
  Workload workload = query.workload;
  Problem& p = workload.problem;
  const std::int64_t cache = p.kv_len - p.q_len;
  p.q_len = slice * placement.ranks;
  p.kv_len = p.q_len + cache;
  p.tile = std::min<std::int64_t>(p.tile, 64);
  workload.layout.cut = Cut::kTokens;
  return workload;
}

}  // namespace

Regimes make_regimes(const PlanQuery& query, const Placement& placement) {
  constexpr double kSlowest = 1e8, kFastest = 1e12;
  constexpr std::int64_t kShortest = 1, kLongest = 1 << 17;
  constexpr int kMostRanks = 1024;  // a minute
  if (placement.ranks == 1 || placement.ranks > kMostRanks)
    throw InvalidArgument(fmt::format("--plot is for rings of 2 to {} ranks, not {}; give --ranks",
                                      kMostRanks, placement.ranks));
  Regimes regimes;
  regimes.ranks = placement.ranks;
  const Problem& p = query.workload.problem;
  regimes.title = fmt::format("The fastest schedule on {} ranks of {}", placement.ranks, query.machine.name);
  regimes.subtitle =
      fmt::format("{} query heads on {} KV heads, dim {}, {}{}{}", p.q_heads, p.kv_heads, p.head_dim,
                  dtype_name(p.kv_dtype), p.causal ? ", causal" : "",
                  p.kv_len > p.q_len ? ", after " + count_text(p.kv_len - p.q_len) + " cached keys" : "");
  for (int i = 0;; ++i) {
    const auto slice = static_cast<std::int64_t>(
        std::llround(static_cast<double>(kShortest) * std::exp2(static_cast<double>(i) / kSlicesPerOctave)));
    if (slice > kLongest) break;
    if (regimes.slices.empty() || slice > regimes.slices.back()) regimes.slices.push_back(slice);
  }
  const int speeds = static_cast<int>(std::lround(std::log10(kFastest / kSlowest))) * kSpeedsPerDecade;
  for (int i = 0; i <= speeds; ++i)
    regimes.bytes_per_s.push_back(kSlowest * std::pow(10.0, static_cast<double>(i) / kSpeedsPerDecade));
  for (const std::int64_t slice : regimes.slices) {
    const Setting work(query.machine, with_slices(query, placement, slice), placement);
    std::vector<int> column;
    for (const double speed : regimes.bytes_per_s) {
      const Machine machine = with_links(query.machine, speed);
      const Setting setting(work, machine);
      column.push_back(index_of(regimes, fastest(price_all(setting))));
      if (slice == regimes.slices.back()) regimes.break_even.push_back(break_even_slice(setting));
    }
    regimes.winner.push_back(column);
  }
  regimes.links.push_back({"within a node", query.machine.within_node.bytes_per_s.value});
  if (query.machine.between_nodes)
    regimes.links.push_back({"between nodes", query.machine.between_nodes->bytes_per_s.value});
  regimes.slice_tokens = (p.q_len + placement.ranks - 1) / placement.ranks;
  return regimes;
}

}  // namespace kvring
