#include "cli/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cli/bench/machine.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/sample.h"
#include "kvring/ring.h"
#include "kvring/version.h"
#include "tensor/buffer.h"

namespace kvring::cli {
namespace {

constexpr int kDim = 128;
constexpr int kRepeats = 7;
// Medians of a shift of each size. Latency comes from the small one; the large one is as long as a lap's
// blocks are.
constexpr std::int64_t kSmallBytes = 1 << 10, kLargeBytes = 4 << 20;

// Seconds of one attend() on this rank alone, a median; all ranks measure at the same time.
double attend_s(const Problem& problem, int threads, Transport& team) {
  const auto alone = make_inproc_transports(1, 3600);
  RingOptions options;
  options.threads = threads;
  Ring ring(problem, make_layouts({}, problem, 1), options, *alone[0]);
  const RandomTensor q(problem.q_dtype, {1, problem.q_len, problem.q_heads, kDim}, 1);
  const RandomTensor k(problem.kv_dtype, {1, problem.kv_len, problem.kv_heads, kDim}, 2);
  const RandomTensor v(problem.kv_dtype, {1, problem.kv_len, problem.kv_heads, kDim}, 3);
  const RandomTensor out(problem.out_dtype, {1, problem.q_len, problem.q_heads, kDim}, 4);
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    team.barrier("the start of a measurement");
    const Sample sample = time_work(
        [&] { ring.attend(as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view()); }, 1);
    if (i > 0) seconds.push_back(sample.wall_s);
  }
  return median(seconds);
}

Problem problem_of(DType dtype, std::int64_t queries, std::int64_t keys, int heads) {
  Problem p;
  p.q_len = queries;
  p.kv_len = keys;
  p.q_heads = p.kv_heads = heads;
  p.head_dim = p.value_dim = kDim;
  p.q_dtype = p.kv_dtype = p.out_dtype = dtype;
  return p;
}

// Operations per second of many queries.
double flops(DType dtype, int threads, Transport& team) {
  constexpr std::int64_t kTokens = 2048;
  const int heads = 2 * threads;
  const double operations = 4.0 * kDim * kTokens * kTokens * heads;
  return operations / attend_s(problem_of(dtype, kTokens, kTokens, heads), threads, team);
}

// Bytes of keys and values per second that one query passes, packing them included, as every call does it.
double read_rate(int threads, Transport& team) {
  const std::int64_t keys = std::int64_t{1} << 16;
  const double bytes = 2.0 * kDim * 4 * static_cast<double>(keys) * threads;
  return bytes / attend_s(problem_of(DType::kF32, 1, keys, threads), threads, team);
}

// Seconds until this rank has the bytes of the rank before while all send to the next.
double shift_s(std::int64_t bytes, Transport& team) {
  AlignedBuffer outgoing(bytes), incoming(bytes);
  std::fill_n(outgoing.data(), bytes, std::byte{1});
  const int ranks = team.size(), next = (team.rank() + 1) % ranks, before = (team.rank() + ranks - 1) % ranks;
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    team.barrier("the start of a measurement");
    const Sample sample = time_work(
        [&] {
          const std::span<std::byte> buffer(incoming.data(), static_cast<std::size_t>(bytes));
          const auto receive =
              team.post_receive(before, team.passes_pointers() ? std::span<std::byte>() : buffer);
          const auto send = team.post_send(next, {}, {outgoing.data(), static_cast<std::size_t>(bytes)});
          team.wait_receive(receive, "a measurement");
          team.release(receive);
          team.wait_send(send, "a measurement");
        },
        1);
    if (i > 0) seconds.push_back(sample.wall_s);
  }
  return median(seconds);
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Json measure(int threads, Transport& team) {
  Json rank = {{"host", host_name()}, {"memory", ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE)}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    rank["flops"][std::string(dtype_name(dtype))] = flops(dtype, threads, team);
  rank["read"] = read_rate(threads, team);
  if (team.size() == 1) return rank;
  rank["small_s"] = shift_s(kSmallBytes, team);
  rank["large_s"] = shift_s(kLargeBytes, team);
  return rank;
}

double least(const std::vector<Json>& ranks, const Json::json_pointer& key) {
  double value = ranks[0].at(key).get<double>();
  for (const Json& rank : ranks) value = std::min(value, rank.at(key).get<double>());
  return value;
}

// Of the hops that do or do not cross hosts, the slowest; null where there are none.
Json link_json(const std::vector<Json>& ranks, bool across, const std::string& source) {
  double small = 0, large = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Json& before = ranks[(i + ranks.size() - 1) % ranks.size()];
    if (!ranks[i].contains("small_s") || (ranks[i]["host"] != before["host"]) != across) continue;
    small = std::max(small, ranks[i]["small_s"].get<double>());
    large = std::max(large, ranks[i]["large_s"].get<double>());
  }
  if (small == 0) return nullptr;
  // Where only pointers pass, both take the same but for noise.
  const double bytes_per_s = static_cast<double>(kLargeBytes - kSmallBytes) / std::max(large - small, 1e-9);
  return {
      {"bytes_per_s", {{"value", bytes_per_s}, {"kind", "measured, all ranks sending"}, {"source", source}}},
      {"latency_s", {{"value", small}, {"kind", "measured, 1 KiB"}, {"source", source}}}};
}

Json profile(const std::vector<Json>& ranks, const Team& team) {
  const std::string source = fmt::format("kvring {} plan --calibrate, {} ranks over {} on {}", version(),
                                         ranks.size(), team.transport(), machine_text(machine_json()));
  const auto figure = [&](double value, const char* kind) -> Json {
    return {{"value", value}, {"kind", kind}, {"source", source}};
  };
  std::map<std::string, int> on_host;
  for (const Json& rank : ranks) ++on_host[rank["host"].get<std::string>()];
  int most = 0;
  for (const auto& [host, count] : on_host) most = std::max(most, count);
  Json machine = {{"description", "measured: " + source}};
  for (const char* dtype : {"f32", "bf16", "f16"})
    machine["flops_per_s"][dtype] = figure(least(ranks, Json::json_pointer(std::string("/flops/") + dtype)),
                                           "measured, attention of 2,048 queries and keys, dim 128");
  machine["memory_bytes"] = figure(std::floor(least(ranks, Json::json_pointer("/memory")) / most),
                                   "memory of the host over its ranks");
  machine["memory_bytes_per_s"] =
      figure(least(ranks, Json::json_pointer("/read")), "measured, keys and values passing one query");
  machine["ranks_per_node"] = figure(most, "ranks per host");
  machine["threads"] = figure(team.cores_per_rank(), "cores per rank");
  const Json within = link_json(ranks, false, source), between = link_json(ranks, true, source);
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

}  // namespace

std::optional<Json> calibrate(Team& team) {
  std::optional<Json> machine;
  const int threads = team.cores_per_rank();
  team.run({[] {},
            [&](Transport& transport) {
              const std::vector<std::string> all =
                  transport.allgather(measure(threads, transport).dump(), "the measurements");
              if (transport.rank() != 0) return;
              std::vector<Json> ranks;
              for (const std::string& text : all) ranks.push_back(Json::parse(text));
              machine = profile(ranks, team);
            },
            {},
            [](Transport&) {}});
  return machine;
}

}  // namespace kvring::cli
