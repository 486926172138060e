#include "cli/machine_profile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/measured_calls.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(DType dtype) { return std::string(dtype_name(dtype)); }

double fastest(const Measured& rank, const std::string& name) {
  const std::vector<double>& rounds = rank.seconds.at(name);
  return *std::min_element(rounds.begin(), rounds.end());
}

// Of the slowest rank.
double fastest(const std::vector<Measured>& ranks, const std::string& name) {
  double seconds = 0;
  for (const Measured& rank : ranks) seconds = std::max(seconds, fastest(rank, name));
  return seconds;
}

// Ranks of a ring wait for each other: of every round, the slowest one.
double mean(const std::vector<Measured>& ranks, const std::string& name) {
  const std::size_t rounds = ranks[0].seconds.at(name).size();
  double sum = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    double slowest = 0;
    for (const Measured& rank : ranks) slowest = std::max(slowest, rank.seconds.at(name)[i]);
    sum += slowest;
  }
  return sum / static_cast<double>(rounds);
}

// What a call takes is operations / flops_per_s + row_bytes / rows_bytes_per_s + key_bytes /
// keys_bytes_per_s, and a pass over the keys where the operations are next to nothing.
struct Rates {
  double slowdown;                      // of all rounds against the fastest
  double read_s;                        // per byte
  double keys_s = 0;                    // per byte, beside reading
  double rows_s = 0;                    // per byte
  std::array<double, 3> operation_s{};  // by DType

  Rates(const std::vector<Measured>& ranks, int threads)
      : slowdown(mean(ranks, "f32") / fastest(ranks, "f32")), read_s(fastest(ranks, "read")) {
    const Call keys = keys_call(threads), brief = short_call(threads);
    keys_s = std::max(0.0, fastest(ranks, "keys") / keys.key_bytes() - read_s);
    const Call lengthy = long_call(DType::kF32, threads);
    const double a = fastest(ranks, "f32") - keys_s * lengthy.key_bytes(),
                 b = fastest(ranks, "short") - keys_s * brief.key_bytes();
    const double determinant =
        lengthy.operations() * brief.row_bytes() - brief.operations() * lengthy.row_bytes();
    rows_s = std::max(0.0, (lengthy.operations() * b - brief.operations() * a) / determinant);
    for (const DType dtype : kMeasuredDTypes) {
      const Call call = long_call(dtype, threads);
      const double seconds = fastest(ranks, name_of(dtype));
      const double rest = seconds - keys_s * call.key_bytes() - rows_s * call.row_bytes();
      operation_s[static_cast<std::size_t>(dtype)] =
          slowdown * std::max(rest, 0.1 * seconds) / call.operations();
    }
    for (double* seconds : {&read_s, &keys_s, &rows_s}) *seconds *= slowdown;
  }
};

class Figures {
 public:
  explicit Figures(const std::string& source) : source_(source) {}
  Json operator()(double value, const char* kind) const {
    return {{"value", value}, {"kind", kind}, {"source", source_}};
  }

 private:
  const std::string& source_;
};

// Of the hops that do or do not cross hosts, the slowest; null where there are none.
Json link_json(const std::vector<Measured>& ranks, bool across, double slowdown, const Figures& figure) {
  double small = 0, large = 0, taken = 0, beside = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Measured &rank = ranks[i], &before = ranks[(i + ranks.size() - 1) % ranks.size()];
    if (!rank.seconds.contains("small") || (rank.host != before.host) != across) continue;
    small = std::max(small, fastest(rank, "small"));
    large = std::max(large, fastest(rank, "large"));
    if (!rank.seconds.contains("busy")) continue;
    taken = std::max(taken, (fastest(rank, "busy") - fastest(rank, "f32")) / rank.meanwhile_bytes);
    beside = std::max(
        beside, (fastest(rank, "beside") - fastest(rank, "small")) / (rank.meanwhile_bytes - kSmallBytes));
  }
  if (small == 0) return nullptr;
  // Where only pointers pass, both take the same but for noise.
  const double bytes_per_s = (kLargeBytes - kSmallBytes) / std::max(large - small, 1e-9);
  Json link = {{"bytes_per_s", figure(bytes_per_s, "measured, all ranks sending")},
               {"latency_s", figure(small, "measured, 1 KiB")}};
  if (taken > 0)
    link["computing_s_per_byte"] = figure(slowdown * taken, "measured, attention while all ranks send");
  if (beside * bytes_per_s > 1)
    link["computing_bytes_per_s"] = figure(1 / beside, "measured, all ranks sending while they attend");
  return link;
}

}  // namespace

Json machine_profile(const std::vector<Measured>& ranks, int threads, const std::string& source) {
  const Rates rates(ranks, threads);
  const Figures figure(source);
  std::map<std::string, int> on_host;
  for (const Measured& rank : ranks) ++on_host[rank.host];
  int on_one = 0;
  for (const auto& [host, count] : on_host) on_one = std::max(on_one, count);
  double least_memory = ranks[0].memory_bytes;
  for (const Measured& rank : ranks) least_memory = std::min(least_memory, rank.memory_bytes);
  Json machine = {{"description", "measured: " + source}};
  for (const DType dtype : kMeasuredDTypes)
    machine["flops_per_s"][name_of(dtype)] = figure(1 / rates.operation_s[static_cast<std::size_t>(dtype)],
                                                    "measured, attention of 4,096 queries and keys, dim 128");
  machine["memory_bytes"] = figure(std::floor(least_memory / on_one), "memory of the host over its ranks");
  machine["memory_bytes_per_s"] = figure(1 / rates.read_s, "measured, reading");
  // Where nothing is left to be measured, nothing is priced.
  constexpr double kLeast = 1e-15;
  machine["calls"] = {
      {"keys_bytes_per_s",
       figure(1 / std::max(rates.keys_s, kLeast), "measured, one query over 65,536 keys")},
      {"rows_bytes_per_s", figure(1 / std::max(rates.rows_s, kLeast),
                                  "measured, attention of 256 queries over 1,024 keys, dim 128")}};
  machine["ranks_per_node"] = figure(on_one, "ranks per host");
  machine["threads"] = figure(threads, "cores per rank");
  const Json within = link_json(ranks, false, rates.slowdown, figure),
             between = link_json(ranks, true, rates.slowdown, figure);
  // A rank that is alone on its host, or alone at all, sends nothing within it; as if by memory.
  const Json memory = {{"bytes_per_s", machine["memory_bytes_per_s"]},
                       {"latency_s", figure(0, "not measured: no two neighbours on one host")}};
  machine["within_node"] = within.is_null() ? memory : within;
  if (!between.is_null()) {
    machine["between_nodes"] = between;
    machine["between_nodes"]["links"] = figure(1, "assumed");
  }
  return machine;
}

}  // namespace kvring::cli
