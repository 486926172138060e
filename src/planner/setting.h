// One thing to be priced: a workload on so many ranks of a machine, with what all schedules' prices share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "kvring/ring.h"
#include "planner/machine.h"
#include "planner/network.h"
#include "planner/work.h"
#include "planner/workload.h"
#include "schedule/memory.h"

namespace kvring {

// Where and how it runs. Ranks of the ring that are on one node are neighbours.
struct Placement {
  int ranks = 1;           // of the ring
  int ranks_per_node = 0;  // devices of a node; 0 is the machine's
  Mesh mesh;
};

// The part of the workload that one ring has: heads cut by tensor parallelism, batch by data, layers by
// pipeline. Throws InvalidArgument where a degree does not divide, naming degrees that do.
Workload ring_share(const Workload& whole, const Mesh& mesh);

// Memory of the fullest rank.
struct RankMemory {
  std::int64_t heads_per_lap = 1;
  int rank = 0;
  Ledger attention;  // by name, equal to the ledger of that rank (schedule/memory.h)
  Ledger model;      // what the model takes beside it; empty without one
  std::int64_t total() const { return ledger_total(attention) + ledger_total(model); }
};
RankMemory ring_memory(const Machine& machine, const Workload& whole, const Placement& placement);
// The first schedule, the ring first, that can serve the workload there and that the machine's memory holds.
std::optional<ScheduleKind> fitting_schedule(const Machine& machine, const Workload& whole,
                                             const Placement& placement);

// What a schedule does and holds; the same on every machine of as many ranks per node and as much memory.
struct ScheduleFacts {
  ScheduleWork work;
  RankMemory memory;
};

class Setting {
 public:
  // The machine must outlive it. Throws InvalidArgument or Unsupported for what cannot be.
  Setting(const Machine& machine, const Workload& whole, const Placement& placement);
  // One layer's attention over shards that are as they are, the ranks of a node `per_node` neighbours.
  Setting(const Machine& machine, const Problem& problem, Layouts layouts, int per_node);
  // The same work on a machine with other speeds. The machine must outlive it.
  Setting(const Setting& other, const Machine& machine);
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  const Machine& machine() const noexcept { return machine_; }
  const Problem& problem() const noexcept { return share_.problem; }  // of one ring
  const Layouts& layouts() const noexcept { return layouts_; }
  const Network& network() const noexcept { return network_; }
  // Worked out when first asked for. Throws where the schedule cannot serve the workload.
  const ScheduleFacts& of(ScheduleKind kind) const;
  const ScheduleWork& work() const { return of(ScheduleKind::kRing).work; }
  const Workload& whole() const noexcept { return whole_; }
  const RankMemory& memory() const { return of(ScheduleKind::kRing).memory; }
  const Placement& placement() const noexcept { return placement_; }
  std::int64_t layers() const noexcept { return share_.layers; }
  int ranks() const noexcept { return placement_.ranks; }

  // The longest slices.
  std::int64_t slice_queries() const noexcept { return slice_queries_; }
  std::int64_t slice_keys() const noexcept { return slice_keys_; }
  std::int64_t units() const {
    return problem().batch * problem().kv_heads;
  }                                // KV heads of all batch entries
  std::int64_t key_bytes() const;  // a key and its value, of one KV head

  // Attention over so many (query, key) pairs in each of `units` KV heads, reading `bytes` of keys and values
  // from memory: whichever takes longer.
  double attend_s(double pairs, double units, double bytes) const;
  // What calls take beside their steps, in all layers: all keys packed, and queries, outputs and the
  // accumulators of every lap passed once.
  double calls_s(ScheduleKind kind) const;
  // The same of whatever has such a ledger.
  double calls_s(const Ledger& ledger, double accumulator_bytes) const;
  bool fits(const Ledger& ledger) const;  // attention and model together

 private:
  const Machine& machine_;
  Workload whole_;
  Placement placement_;
  Workload share_;
  Layouts layouts_;
  Network network_;
  using Facts = std::array<std::optional<ScheduleFacts>, std::size(kSchedules)>;
  std::shared_ptr<Facts> facts_;  // by schedule
  std::int64_t slice_queries_ = 0, slice_keys_ = 0;
};

// The smallest slice of queries whose step hides the slowest hop; 0 in a ring of one. Keys grow with the
// queries.
std::int64_t break_even_slice(const Setting& setting);

// The formula behind it. A step attends `density` * n * (keys_per_query * n) pairs for each of `units` KV
// heads while keys_per_query * n keys travel.
struct StepShape {
  double flops_per_pair = 0;  // of one KV head with its query heads
  double bytes_per_key = 0;   // of one KV head
  double keys_per_query = 1;
  double density = 1;  // share of the pairs that the mask leaves
};
struct HopRates {
  double flops_per_s = 0;
  double bytes_per_s = 0;
  double latency_s = 0;
};
// The smallest n that hides a hop that carries `units(n)` KV heads. In the limit of no latency
// n = flops_per_s / bytes_per_s * bytes_per_key / (flops_per_pair * density), which for bfloat16 and one
// query head per KV head is flops_per_s / bytes_per_s (arXiv 2310.01889, section 3).
std::int64_t smallest_hiding_slice(const StepShape& shape, const HopRates& rates, std::int64_t all_units);

// The longest sequence that a ring holds: of queries and keys alike, or of keys where their length differs
// from that of the queries. 0 if not even one tile fits.
std::int64_t longest_context(const Machine& machine, const Workload& whole, const Placement& placement);

}  // namespace kvring
