#include "planner/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvring/error.h"
#include "planner/model.h"
#include "problem/support.h"
#include "schedule/step.h"

namespace kvring {
namespace {

struct LapTime {
  double total_s = 0, exposed_s = 0;
  double longest_compute_s = 0, longest_transfer_s = 0;
};

LapTime lap_time(const Setting& s, const ScheduleWork& work, double units) {
  LapTime time;
  for (const StepWork& step : work.steps) {
    double compute = 0;
    if (step.pairs > 0)
      compute = s.attend_s(step.pairs, units, units * step.read_bytes) + s.network().computing_s(step, units);
    time.longest_compute_s = std::max(time.longest_compute_s, compute);
    const double transfer = s.network().step_s(step, units, compute);
    time.longest_transfer_s = std::max(time.longest_transfer_s, transfer);
    // Partials are merged when they are here: read, and added to what is read and written.
    const double merge = 3 * units * step.merge_bytes / s.machine().memory_bytes_per_s.value;
    time.total_s += std::max(compute, transfer) + merge;
    time.exposed_s += std::max(0.0, transfer - compute);
  }
  return time;
}

void append(Ledger& ledger, const Ledger& more) { ledger.insert(ledger.end(), more.begin(), more.end()); }

// Ranks, at most as many as there are, that divide the heads.
std::int64_t dividing(std::int64_t heads, std::int64_t ranks) {
  while (heads % ranks != 0) --ranks;
  return ranks;
}

Price price_tensor_parallel(const Setting& s) {
  const Problem& p = s.problem();
  const auto element = static_cast<std::int64_t>(dtype_bytes(p.kv_dtype));
  const auto layers = static_cast<double>(s.layers());
  Price price;
  price.name = "tensor-parallel";
  price.not_here = "tensor parallelism belongs to the program around kvring";
  const std::int64_t ranks = s.ranks();
  const bool copies = p.kv_heads <= ranks && ranks % p.kv_heads == 0;  // of KV heads
  if (p.q_heads % ranks != 0 || (p.kv_heads % ranks != 0 && !copies)) {
    price.not_possible =
        fmt::format("{} query heads on {} KV heads do not divide over {} ranks; {} ranks would do", p.q_heads,
                    p.kv_heads, ranks, dividing(p.kv_heads, ranks));
    return price;
  }
  const std::int64_t heads = p.q_heads / ranks;
  // The outputs of all heads, projected to the hidden state, are summed over the ranks.
  const std::int64_t hidden = p.batch * p.q_len * p.q_heads * p.value_dim * element;
  price.bytes_per_hop = ranks > 1 ? hidden / ranks : 0;
  // Scatter and gather of the sums, (P - 1) / P of the bytes each way.
  const std::int64_t travels = hidden / ranks * (ranks - 1);
  price.transfer_s_per_step = 2 * s.network().gather_s(static_cast<double>(travels));
  const std::int64_t kv_heads = copies ? 1 : p.kv_heads / ranks;
  price.compute_s_per_step =
      s.attend_s(s.work().all_pairs, static_cast<double>(s.units()) / static_cast<double>(ranks),
                 static_cast<double>(p.batch * kv_heads * p.kv_len * s.key_bytes()));
  price.exposed_s = layers * price.transfer_s_per_step;
  price.total_s = price.exposed_s + layers * price.compute_s_per_step;
  const auto tensor = [&](std::int64_t tokens, std::int64_t of, std::int64_t dim) {
    return p.batch * tokens * of * dim * element;
  };
  price.memory = {{"q", tensor(p.q_len, heads, p.head_dim)},
                  {"k", tensor(p.kv_len, kv_heads, p.head_dim)},
                  {"v", tensor(p.kv_len, kv_heads, p.value_dim)},
                  {"out", tensor(p.q_len, heads, p.value_dim)},
                  {"summed_out", hidden}};
  Mesh mesh = s.placement().mesh;
  mesh.tensor *= ranks;
  price.total_s += s.calls_s(price.memory, 0);
  append(price.memory, model_memory({s.whole(), ring_share(s.whole(), mesh), mesh, 1, p.q_len, p.kv_len}));
  price.fits = s.fits(price.memory);
  return price;
}

// Why this build cannot run it, by the support table.
std::string refusal(const Setting& s, ScheduleKind kind) {
  try {
    require_supported(s.problem(), s.layouts(), kind);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Price price_schedule(ScheduleKind kind, const Setting& s) {
  Price price;
  price.name = schedule_name(kind);
  price.not_here = refusal(s, kind);
  price.not_possible = schedule_refusal(kind, s.problem(), s.ranks());
  if (!price.not_possible.empty()) return price;
  const auto& [work, memory] = s.of(kind);
  const std::int64_t lap = memory.heads_per_lap;
  const std::int64_t full_laps = s.units() / lap, rest = s.units() % lap;
  const LapTime full = lap_time(s, work, static_cast<double>(lap));
  const LapTime last = rest > 0 ? lap_time(s, work, static_cast<double>(rest)) : LapTime();
  const auto over_laps = [&](double a, double b) {
    return (static_cast<double>(full_laps) * a + b) * static_cast<double>(s.layers());
  };
  price.total_s = over_laps(full.total_s, last.total_s) + s.calls_s(kind);
  price.exposed_s = over_laps(full.exposed_s, last.exposed_s);
  price.compute_s_per_step = full.longest_compute_s;
  price.transfer_s_per_step = full.longest_transfer_s;
  double largest = 0;
  for (const StepWork& step : work.steps) largest = std::max(largest, step.largest_message);
  price.bytes_per_hop = std::llround(largest * static_cast<double>(lap));
  price.memory = memory.attention;
  append(price.memory, memory.model);
  price.fits = s.fits(price.memory);
  return price;
}

double price_lap_s(ScheduleKind kind, const Setting& s, double units) {
  return lap_time(s, s.of(kind).work, units).total_s;
}

std::vector<Price> price_all(const Setting& s) {
  std::vector<Price> prices;
  for (const ScheduleKind kind : kSchedules) prices.push_back(price_schedule(kind, s));
  prices.push_back(price_tensor_parallel(s));
  return prices;
}

}  // namespace kvring
