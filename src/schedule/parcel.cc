#include "schedule/parcel.h"

#include "problem/kernel_sizes.h"
#include "schedule/work_cut.h"

namespace kvring {
namespace {

const Shard& shard_of(const Layout& layout, int rank) {
  return layout.shards[static_cast<std::size_t>(rank)];
}

std::int64_t rows_of(const Problem& p, const Shard& queries) {
  return queries.tokens() * (p.q_heads / p.kv_heads);
}

}  // namespace

std::int64_t rows_lse_offset(const Problem& p, const Shard& queries, std::int64_t units) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(p.out_dtype));
  const std::int64_t bytes = units * rows_of(p, queries) * p.value_dim * element;
  return (bytes + 3) / 4 * 4;
}

std::int64_t parcel_bytes(const Problem& p, const Layouts& layouts, Cargo cargo, int owner,
                          std::int64_t units) {
  const Shard& queries = shard_of(layouts.q, owner);
  switch (cargo) {
    case Cargo::kBlock:
      return units * unit_block_bytes(p, shard_of(layouts.kv, owner));
    case Cargo::kQueries:
      return units * rows_of(p, queries) * p.head_dim * static_cast<std::int64_t>(dtype_bytes(p.q_dtype));
    case Cargo::kPartials:
      return units * panels_of(p, queries) * panel_bytes(p.value_dim, p.accumulation);
    case Cargo::kRows:
      return rows_lse_offset(p, queries, units) + units * rows_of(p, queries) * 4;
  }
  return 0;
}

Traffic planned_traffic(const Problem& problem, const Layouts& layouts, const std::vector<Step>& steps,
                        const std::vector<Lap>& laps) {
  const auto ranks = static_cast<int>(layouts.q.shards.size());
  Traffic traffic;
  for (const Lap& lap : laps) {
    for (const Step& step : steps) {
      for (const Transfer& send : step.sends) {
        const std::int64_t units = share_of(lap, send.parcel.share, ranks).units();
        traffic.bytes += parcel_bytes(problem, layouts, send.parcel.cargo, send.parcel.owner, units);
        traffic.parcels += 1;
      }
    }
  }
  return traffic;
}

}  // namespace kvring
