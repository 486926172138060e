#include "planner/price.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"
#include "planner/model.h"
#include "problem/kernel_sizes.h"
#include "problem/support.h"
#include "schedule/work_cut.h"

namespace kvring {
namespace {

// Sizes that several schedules share, of one lap of `units` KV heads unless said otherwise.
struct Sizes {
  explicit Sizes(const Setting& s)
      : p(s.problem()),
        lap(s.memory().heads_per_lap),
        laps(static_cast<double>(lap_count(s, lap))),
        layers(static_cast<double>(s.layers())),
        element(static_cast<std::int64_t>(dtype_bytes(p.kv_dtype))),
        group(p.q_heads / p.kv_heads) {}

  static std::int64_t lap_count(const Setting& s, std::int64_t lap) {
    return (s.units() + lap - 1) / lap * s.layers();
  }
  // Accumulators of so many queries of one KV head, in whole panels.
  std::int64_t accumulators(std::int64_t queries) const {
    return (queries * group + kPanelRows - 1) / kPanelRows * panel_bytes(p.value_dim, p.accumulation);
  }
  std::int64_t query_bytes(std::int64_t queries) const { return queries * group * p.head_dim * element; }
  std::int64_t out_bytes(std::int64_t queries) const { return queries * group * p.value_dim * element; }

  const Problem& p;
  std::int64_t lap;
  double laps;  // of all layers
  double layers;
  std::int64_t element;
  std::int64_t group;  // query heads of a KV head
};

void append(Ledger& ledger, const Ledger& more) { ledger.insert(ledger.end(), more.begin(), more.end()); }

// Instead of what only a ring holds: `more`.
void set_memory(Price& price, const Setting& s, const Ledger& more) {
  for (const auto& entry : s.memory().attention) {
    if (entry.first == "accumulators" || entry.first.starts_with("block_")) continue;
    price.memory.push_back(entry);
  }
  append(price.memory, more);
  append(price.memory, s.memory().model);
  price.fits = s.fits(price.memory);
}

// Accumulators where all keys come at once: of the panels that threads are at.
std::int64_t accumulators_at_once(const Setting& s, const Shard& queries, std::int64_t units) {
  return accumulator_bytes({s.problem(), queries, units, 1, static_cast<int>(s.machine().threads.value)});
}

const Shard& fullest_queries(const Setting& s) {
  return s.layouts().q.shards[static_cast<std::size_t>(s.memory().rank)];
}

Price price_all_gather(const Setting& s) {
  const Sizes z(s);
  Price price;
  price.name = "all-gather";
  const std::int64_t block = z.lap * s.slice_keys() * s.key_bytes();
  const std::int64_t all = z.lap * s.problem().kv_len * s.key_bytes();
  price.bytes_per_hop = s.ranks() > 1 ? block : 0;
  price.transfer_s_per_step = s.network().gather_s(static_cast<double>(all - std::min(all, block)));
  price.compute_s_per_step = s.attend_s(static_cast<double>(s.work().most_of_query_rank),
                                        static_cast<double>(z.lap), static_cast<double>(all));
  // Nothing hides the first gather; the next ones travel while the last is attended.
  const double later = std::max(0.0, price.transfer_s_per_step - price.compute_s_per_step);
  price.exposed_s = price.transfer_s_per_step + (z.laps - 1) * later;
  price.total_s = price.exposed_s + z.laps * price.compute_s_per_step;
  Ledger more = {{"accumulators", accumulators_at_once(s, fullest_queries(s), z.lap)}, {"gathered_0", all}};
  if (z.laps > 1 && s.ranks() > 1) more.emplace_back("gathered_1", all);
  set_memory(price, s, more);
  return price;
}

Price price_pass_q(const Setting& s) {
  const Sizes z(s);
  Price price;
  price.name = "pass-q";
  const std::int64_t bundle = z.lap * (z.query_bytes(s.slice_queries()) + z.accumulators(s.slice_queries()));
  const std::int64_t block = z.lap * s.slice_keys() * s.key_bytes();
  price.bytes_per_hop = s.ranks() > 1 ? bundle : 0;
  price.transfer_s_per_step = s.network().slowest_hop(static_cast<double>(bundle)).seconds;
  // Queries of rank r - t meet the keys of rank r: over all ranks the pairs of the ring's step P - t. What
  // travels is the result of the step, so nothing hides it; and the last hop takes it home.
  double compute = 0;
  for (const StepWork& step : s.work().steps) {
    if (step.most_pairs == 0) continue;
    const double seconds = s.attend_s(static_cast<double>(step.most_pairs), static_cast<double>(z.lap),
                                      static_cast<double>(block));
    compute += seconds;
    price.compute_s_per_step = std::max(price.compute_s_per_step, seconds);
  }
  price.exposed_s = z.laps * s.ranks() * price.transfer_s_per_step;
  price.total_s = z.laps * compute + price.exposed_s;
  Ledger more = {{"block_0", block}, {"queries_0", bundle}};
  if (s.ranks() > 1) more.emplace_back("queries_1", bundle);
  set_memory(price, s, more);
  return price;
}

// Ranks, at most as many as there are, that divide the heads.
std::int64_t dividing(std::int64_t heads, std::int64_t ranks) {
  while (heads % ranks != 0) --ranks;
  return ranks;
}

Price price_ulysses(const Setting& s) {
  const Sizes z(s);
  Price price;
  price.name = "ulysses";
  const std::int64_t ranks = s.ranks();
  if (z.p.kv_heads % ranks != 0) {
    price.not_possible = fmt::format("{} KV heads do not divide over {} ranks; {} ranks would do",
                                     z.p.kv_heads, ranks, dividing(z.p.kv_heads, ranks));
    return price;
  }
  const std::int64_t units = s.units() / ranks;  // of the heads that a rank attends
  const std::int64_t there = s.units() * (z.query_bytes(s.slice_queries()) +
                                          s.slice_keys() * s.key_bytes());  // of a rank's own tokens
  const std::int64_t back = s.units() * z.out_bytes(s.slice_queries());
  price.bytes_per_hop = ranks > 1 ? there / ranks : 0;
  price.transfer_s_per_step = s.network().all_to_all_s(static_cast<double>(there)) +
                              s.network().all_to_all_s(static_cast<double>(back));
  price.compute_s_per_step = s.attend_s(static_cast<double>(s.work().all_pairs), static_cast<double>(units),
                                        static_cast<double>(units * z.p.kv_len * s.key_bytes()));
  price.exposed_s = z.layers * price.transfer_s_per_step;
  price.total_s = price.exposed_s + z.layers * price.compute_s_per_step;
  const Shard whole(std::vector<Range>{{0, z.p.q_len}});
  set_memory(price, s,
             {{"heads_q", units * z.query_bytes(z.p.q_len)},
              {"heads_kv", units * z.p.kv_len * s.key_bytes()},
              {"heads_out", units * z.out_bytes(z.p.q_len)},
              {"accumulators", accumulators_at_once(s, whole, units)}});
  return price;
}

Price price_tree(const Setting& s) {
  const Sizes z(s);
  Price price;
  price.name = "tree";
  const std::int64_t queries = s.units() * z.query_bytes(z.p.q_len);
  const std::int64_t partials = s.units() * z.accumulators(z.p.q_len);
  const std::int64_t block = s.units() * s.slice_keys() * s.key_bytes();
  price.bytes_per_hop = s.ranks() > 1 ? partials : 0;
  price.transfer_s_per_step =
      s.network().tree_s(static_cast<double>(queries)) + s.network().tree_s(static_cast<double>(partials));
  price.compute_s_per_step = s.attend_s(static_cast<double>(s.work().most_of_key_rank),
                                        static_cast<double>(s.units()), static_cast<double>(block));
  price.exposed_s = z.layers * price.transfer_s_per_step;
  price.total_s = price.exposed_s + z.layers * price.compute_s_per_step;
  Ledger more = {{"all_queries", queries}, {"block_0", block}, {"partials_0", partials}};
  if (s.ranks() > 1) more.emplace_back("partials_1", partials);
  set_memory(price, s, more);
  return price;
}

Price price_tensor_parallel(const Setting& s) {
  const Sizes z(s);
  Price price;
  price.name = "tensor-parallel";
  price.not_here = "tensor parallelism belongs to the program around kvring";
  const std::int64_t ranks = s.ranks();
  const bool copies = z.p.kv_heads <= ranks && ranks % z.p.kv_heads == 0;  // of KV heads
  if (z.p.q_heads % ranks != 0 || (z.p.kv_heads % ranks != 0 && !copies)) {
    price.not_possible =
        fmt::format("{} query heads on {} KV heads do not divide over {} ranks; {} ranks would do",
                    z.p.q_heads, z.p.kv_heads, ranks, dividing(z.p.kv_heads, ranks));
    return price;
  }
  const std::int64_t heads = z.p.q_heads / ranks;
  // The outputs of all heads, projected to the hidden state, are summed over the ranks.
  const std::int64_t hidden = z.p.batch * z.p.q_len * z.p.q_heads * z.p.value_dim * z.element;
  price.bytes_per_hop = ranks > 1 ? hidden / ranks : 0;
  // Scatter and gather of the sums, (P - 1) / P of the bytes each way.
  const std::int64_t travels = hidden / ranks * (ranks - 1);
  price.transfer_s_per_step = 2 * s.network().gather_s(static_cast<double>(travels));
  const std::int64_t kv_heads = copies ? 1 : z.p.kv_heads / ranks;
  price.compute_s_per_step = s.attend_s(
      static_cast<double>(s.work().all_pairs), static_cast<double>(s.units()) / static_cast<double>(ranks),
      static_cast<double>(z.p.batch * kv_heads * z.p.kv_len * s.key_bytes()));
  price.exposed_s = z.layers * price.transfer_s_per_step;
  price.total_s = price.exposed_s + z.layers * price.compute_s_per_step;
  const auto tensor = [&](std::int64_t tokens, std::int64_t of, std::int64_t dim) {
    return z.p.batch * tokens * of * dim * z.element;
  };
  price.memory = {{"q", tensor(z.p.q_len, heads, z.p.head_dim)},
                  {"k", tensor(z.p.kv_len, kv_heads, z.p.head_dim)},
                  {"v", tensor(z.p.kv_len, kv_heads, z.p.value_dim)},
                  {"out", tensor(z.p.q_len, heads, z.p.value_dim)},
                  {"summed_out", hidden}};
  Mesh mesh = s.placement().mesh;
  mesh.tensor *= ranks;
  append(price.memory,
         model_memory({s.whole(), ring_share(s.whole(), mesh), mesh, 1, z.p.q_len, z.p.kv_len}));
  price.fits = s.fits(price.memory);
  return price;
}

// Why this build cannot run it, by the support table.
std::string refusal(const Setting& s, const std::string& schedule) {
  SupportQuery query = support_query(s.problem(), s.layouts(), ScheduleKind::kRing);
  query.schedule = schedule;
  const std::vector<SupportRow> table = support_table();
  for (const SupportRow& row : table) {
    if (row.schedule == schedule && row.dtypes.empty()) return row.instead;  // not built at all
  }
  try {
    require_listed(table, query);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::vector<Price> price_all(const Setting& s) {
  std::vector<Price> prices = {price_ring(s), price_all_gather(s), price_pass_q(s), price_ulysses(s),
                               price_tree(s)};
  for (Price& price : prices) price.not_here = refusal(s, price.name);
  prices.push_back(price_tensor_parallel(s));
  return prices;
}

}  // namespace kvring
