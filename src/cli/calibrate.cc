#include "cli/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "cli/bench/machine.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/sample.h"
#include "kvring/ring.h"
#include "kvring/version.h"
#include "peak/peak.h"
#include "schedule/parcel.h"
#include "tensor/buffer.h"

namespace kvring::cli {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

constexpr int kDim = 128;
// A shared machine is slow for tenths of a second at a time: every measurement is made in each round, and the
// least of all rounds counts.
constexpr int kRounds = 5;
// Latency comes from the small shift; the large one is as long as a lap's blocks are.
constexpr std::int64_t kSmallBytes = 1 << 10, kLargeBytes = 4 << 20;
constexpr std::int64_t kReadBytes = std::int64_t{256} << 20;

// All ranks send to the next, and wait for what the rank before sends.
class Shift {
 public:
  Shift(std::int64_t bytes, Transport& team) : team_(team), outgoing_(bytes), incoming_(bytes) {
    std::fill_n(outgoing_.data(), bytes, std::byte{1});
  }
  void post() {
    const int ranks = team_.size(), rank = team_.rank();
    const auto bytes = static_cast<std::size_t>(outgoing_.bytes());
    const std::span<std::byte> room(incoming_.data(), team_.passes_pointers() ? 0 : bytes);
    receive_ = team_.post_receive((rank + ranks - 1) % ranks, room);
    send_ = team_.post_send((rank + 1) % ranks, {}, {outgoing_.data(), bytes});
  }
  void wait() {
    team_.wait_receive(receive_, "a measurement");
    team_.release(receive_);
    team_.wait_send(send_, "a measurement");
  }

 private:
  Transport& team_;
  AlignedBuffer outgoing_, incoming_;
  Transport::Request receive_ = 0, send_ = 0;
};

// One call of a ring within this rank: one member has all queries and half of the keys, the other the rest of
// the keys, which nobody moves. So all work is the first member's, and it is that of a ring: a rank that is
// alone keeps no accumulators.
struct Call {
  DType dtype;
  std::int64_t queries, keys;
  int heads;

  Problem problem() const {
    Problem p;
    p.q_len = queries;
    p.kv_len = keys;
    p.q_heads = p.kv_heads = heads;
    p.head_dim = p.value_dim = kDim;
    p.q_dtype = p.kv_dtype = p.out_dtype = dtype;
    return p;
  }
  Layouts layouts() const {
    const std::int64_t half = keys / 2;
    return {{{LayoutKind::kCustom}, queries, {Shard({{0, queries}}), Shard()}},
            {{LayoutKind::kCustom}, keys, {Shard({{0, half}}), Shard({{half, keys}})}}};
  }
  double operations() const {
    return 4.0 * kDim * static_cast<double>(queries) * static_cast<double>(keys) * heads;
  }
  double key_bytes() const { return bytes(keys); }  // and values
  double row_bytes() const {                        // queries, outputs, accumulators
    return bytes(queries) +
           static_cast<double>(parcel_bytes(problem(), layouts(), Cargo::kPartials, 0, heads));
  }

 private:
  double bytes(std::int64_t tokens) const {
    return 2.0 * kDim * static_cast<double>(dtype_bytes(dtype)) * static_cast<double>(tokens) * heads;
  }
};
// Nearly all of a long call is arithmetic, half of a short one is not. One query passes its keys.
Call long_call(DType dtype, int threads) { return {dtype, 4096, 4096, threads}; }
Call short_call(int threads) { return {DType::kF32, 256, 1024, 16 * threads}; }
Call keys_call(int threads) { return {DType::kF32, 1, std::int64_t{1} << 16, threads}; }

// A member of such a ring, with new workspaces, as a program's first call has them.
class Member {
 public:
  Member(const Call& call, int threads, Transport& transport)
      : ring_(call.problem(), call.layouts(), options(threads), transport),
        q_(tensor(call, call.layouts().q, transport, 1)),
        k_(tensor(call, call.layouts().kv, transport, 2)),
        v_(tensor(call, call.layouts().kv, transport, 3)),
        out_(tensor(call, call.layouts().q, transport, 4)) {}
  void attend() { ring_.attend(as_const(q_.view()), as_const(k_.view()), as_const(v_.view()), out_.view()); }

 private:
  static RingOptions options(int threads) {
    RingOptions options;
    options.threads = threads;
    return options;
  }
  static RandomTensor tensor(const Call& call, const Layout& layout, const Transport& transport,
                             std::uint32_t seed) {
    const Shard& shard = layout.shards[static_cast<std::size_t>(transport.rank())];
    return {call.dtype, {1, shard.tokens(), call.heads, kDim}, seed};
  }

  Ring ring_;
  RandomTensor q_, k_, v_, out_;
};

// While `meanwhile` bytes come from the rank before and go to the next.
double call_s(const Call& call, int threads, Transport& team, std::int64_t meanwhile = 0) {
  constexpr double kDeadline = 60;
  const auto pair = make_inproc_transports(2, kDeadline);
  std::future<void> other;  // waits for its end, after `begin` is gone
  std::promise<void> begin;
  other = std::async(std::launch::async, [&, begins = begin.get_future()]() mutable {
    Member member(call, threads, *pair[1]);
    begins.get();
    member.attend();
  });
  Member member(call, threads, *pair[0]);
  std::optional<Shift> shift;
  if (meanwhile > 0) shift.emplace(meanwhile, team);
  team.barrier("the start of a measurement");
  if (shift) shift->post();
  begin.set_value();
  const double seconds = time_work([&] { member.attend(); }, 1).wall_s;
  other.get();
  if (shift) shift->wait();
  return seconds;
}

double shift_s(std::int64_t bytes, Transport& team) {
  Shift shift(bytes, team);
  team.barrier("the start of a measurement");
  return time_work([&] { shift.post(), shift.wait(); }, 1).wall_s;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// All ranks measure the same thing at the same time.
class Measurement {
 public:
  Measurement(int threads, Transport& team)
      : threads_(threads),
        team_(team),
        figures_({{"host", host_name()}, {"memory", ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE)}}) {}

  Json run() {
    const ReadBandwidth reads(kReadBytes);
    for (int round = 0; round < kRounds; ++round) {
      for (const DType dtype : kDTypes)
        keep_least(std::string(dtype_name(dtype)), call_s(long_call(dtype, threads_), threads_, team_));
      keep_least("short", call_s(short_call(threads_), threads_, team_));
      keep_least("keys", call_s(keys_call(threads_), threads_, team_));
      team_.barrier("the start of a measurement");
      keep_least("read", 1e-9 / reads.gbytes_per_s(threads_));
      if (team_.size() > 1) shifts();
    }
    return figures_;
  }

 private:
  void keep_least(const std::string& name, double seconds) {
    figures_[name] = std::min(figures_.value(name, seconds), seconds);
  }

  void shifts() {
    keep_least("small", shift_s(kSmallBytes, team_));
    keep_least("large", shift_s(kLargeBytes, team_));
    if (team_.passes_pointers()) return;  // nothing that would take from computing
    const Call call = long_call(DType::kF32, threads_);
    if (meanwhile_ == 0) meanwhile_ = bytes_during(std::string(dtype_name(call.dtype)));
    figures_["meanwhile"] = meanwhile_;
    keep_least("busy", call_s(call, threads_, team_, meanwhile_));
  }

  // What passes in four fifths of a call, by every rank's figures so far; all ranks have the same answer.
  std::int64_t bytes_during(const std::string& call) {
    constexpr double kLeast = 1 << 10, kMost = 64 << 20;
    double bytes = kMost;
    const std::string mine = Json({figures_[call], figures_["large"]}).dump();
    for (const std::string& text : team_.allgather(mine, "the measurements")) {
      const Json seconds = Json::parse(text);
      bytes = std::min(bytes, 0.8 * seconds[0].get<double>() / seconds[1].get<double>() * kLargeBytes);
    }
    return static_cast<std::int64_t>(std::max(kLeast, bytes));
  }

  int threads_;
  Transport& team_;
  Json figures_;
  std::int64_t meanwhile_ = 0;
};

// Of the slowest rank.
double most(const std::vector<Json>& ranks, const std::string& name) {
  double value = 0;
  for (const Json& rank : ranks) value = std::max(value, rank.at(name).get<double>());
  return value;
}

// What a call takes is operations / flops_per_s + row_bytes / rows_bytes_per_s + key_bytes /
// keys_bytes_per_s, and a pass over the keys where the operations are next to nothing.
struct Rates {
  double read_s = 0;                    // per byte
  double keys_s = 0;                    // per byte, beside reading
  double rows_s = 0;                    // per byte
  std::array<double, 3> operation_s{};  // by DType

  Rates(const std::vector<Json>& ranks, int threads) : read_s(most(ranks, "read")) {
    const Call keys = keys_call(threads), brief = short_call(threads);
    keys_s = std::max(0.0, most(ranks, "keys") / keys.key_bytes() - read_s);
    const Call lengthy = long_call(DType::kF32, threads);
    const double a = most(ranks, "f32") - keys_s * lengthy.key_bytes(),
                 b = most(ranks, "short") - keys_s * brief.key_bytes();
    const double determinant =
        lengthy.operations() * brief.row_bytes() - brief.operations() * lengthy.row_bytes();
    rows_s = std::max(0.0, (lengthy.operations() * b - brief.operations() * a) / determinant);
    for (const DType dtype : kDTypes) {
      const Call call = long_call(dtype, threads);
      const double seconds = most(ranks, std::string(dtype_name(dtype)));
      const double rest = seconds - keys_s * call.key_bytes() - rows_s * call.row_bytes();
      operation_s[static_cast<std::size_t>(dtype)] = std::max(rest, 0.1 * seconds) / call.operations();
    }
  }
};

Json figure(double value, const char* kind, const std::string& source) {
  return {{"value", value}, {"kind", kind}, {"source", source}};
}

// Of the hops that do or do not cross hosts, the slowest; null where there are none.
Json link_json(const std::vector<Json>& ranks, bool across, const std::string& source) {
  double small = 0, large = 0, taken = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Json& before = ranks[(i + ranks.size() - 1) % ranks.size()];
    if (!ranks[i].contains("small") || (ranks[i]["host"] != before["host"]) != across) continue;
    small = std::max(small, ranks[i]["small"].get<double>());
    large = std::max(large, ranks[i]["large"].get<double>());
    if (ranks[i].contains("busy"))
      taken = std::max(taken, (ranks[i]["busy"].get<double>() - ranks[i]["f32"].get<double>()) /
                                  ranks[i]["meanwhile"].get<double>());
  }
  if (small == 0) return nullptr;
  // Where only pointers pass, both take the same but for noise.
  const double bytes_per_s = static_cast<double>(kLargeBytes - kSmallBytes) / std::max(large - small, 1e-9);
  Json link = {{"bytes_per_s", figure(bytes_per_s, "measured, all ranks sending", source)},
               {"latency_s", figure(small, "measured, 1 KiB", source)}};
  if (taken > 0)
    link["computing_s_per_byte"] = figure(taken, "measured, attention while all ranks send", source);
  return link;
}

Json profile(const std::vector<Json>& ranks, const Team& team) {
  const Rates rates(ranks, team.cores_per_rank());
  const std::string source = fmt::format("kvring {} plan --calibrate, {} ranks over {} on {}", version(),
                                         ranks.size(), team.transport(), machine_text(machine_json()));
  const auto measured = [&](double value, const char* kind) { return figure(value, kind, source); };
  std::map<std::string, int> on_host;
  for (const Json& rank : ranks) ++on_host[rank["host"].get<std::string>()];
  int on_one = 0;
  for (const auto& [host, count] : on_host) on_one = std::max(on_one, count);
  double least_memory = ranks[0]["memory"].get<double>();
  for (const Json& rank : ranks) least_memory = std::min(least_memory, rank["memory"].get<double>());
  Json machine = {{"description", "measured: " + source}};
  for (const DType dtype : kDTypes)
    machine["flops_per_s"][std::string(dtype_name(dtype))] =
        measured(1 / rates.operation_s[static_cast<std::size_t>(dtype)],
                 "measured, attention of 4,096 queries and keys, dim 128");
  machine["memory_bytes"] = measured(std::floor(least_memory / on_one), "memory of the host over its ranks");
  machine["memory_bytes_per_s"] = measured(1 / rates.read_s, "measured, reading");
  // Where nothing is left to be measured, nothing is priced.
  constexpr double kLeast = 1e-15;
  machine["calls"] = {
      {"keys_bytes_per_s",
       measured(1 / std::max(rates.keys_s, kLeast), "measured, one query over 65,536 keys")},
      {"rows_bytes_per_s", measured(1 / std::max(rates.rows_s, kLeast),
                                    "measured, attention of 256 queries over 1,024 keys, dim 128")}};
  machine["ranks_per_node"] = measured(on_one, "ranks per host");
  machine["threads"] = measured(team.cores_per_rank(), "cores per rank");
  const Json within = link_json(ranks, false, source), between = link_json(ranks, true, source);
  // A rank that is alone on its host, or alone at all, sends nothing within it; as if by memory.
  const Json memory = {{"bytes_per_s", machine["memory_bytes_per_s"]},
                       {"latency_s", measured(0, "not measured: no two neighbours on one host")}};
  machine["within_node"] = within.is_null() ? memory : within;
  if (!between.is_null()) {
    machine["between_nodes"] = between;
    machine["between_nodes"]["links"] = measured(1, "assumed");
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
                  transport.allgather(Measurement(threads, transport).run().dump(), "the measurements");
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
