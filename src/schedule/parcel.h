// How large parcels are. Pure functions of the problem and the shard that a parcel is about.
#pragma once

#include <cstdint>

#include "kvring/layout.h"
#include "kvring/problem.h"
#include "schedule/step.h"

namespace kvring {

// Bytes of a parcel of so many KV units about that rank.
std::int64_t parcel_bytes(const Problem& problem, const Layouts& layouts, Cargo cargo, int owner,
                          std::int64_t units);

// Of finished rows: output first, in the problem's dtype, then LSE in float32 from there on.
std::int64_t rows_lse_offset(const Problem& problem, const Shard& queries, std::int64_t units);

// What one rank sends in one call.
struct Traffic {
  std::int64_t bytes = 0;
  std::int64_t parcels = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
Traffic planned_traffic(const Problem& problem, const Layouts& layouts, const std::vector<Step>& steps,
                        const std::vector<Lap>& laps);

}  // namespace kvring
