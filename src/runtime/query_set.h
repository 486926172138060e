// The queries of one rank as another, or itself, attends them: where their rows lie, and the accumulators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvring/problem.h"
#include "kvring/tensor.h"
#include "runtime/query_panels.h"
#include "runtime/rank_tensors.h"
#include "schedule/step.h"
#include "schedule/work_cut.h"

namespace kvring {

// Where the rows of KV units lie in tensors (batch, tokens, heads, dim): those of a caller by batch entry and
// head, those of a parcel one unit after the other, as if it were a batch of as many entries of one KV head.
struct UnitRows {
  std::int64_t first = 0;     // unit of batch entry 0, KV head 0
  std::int64_t kv_heads = 1;  // of a batch entry
  std::int64_t batch(std::int64_t unit) const noexcept { return (unit - first) / kv_heads; }
  std::int64_t first_head(std::int64_t unit, std::int64_t group) const noexcept {
    return (unit - first) % kv_heads * group;
  }
};

// Accumulators of the queries of one rank at a time; memory is the caller's.
struct QuerySet {
  const QueryPanels* panels = nullptr;
  Lap units;  // whose rows
  UnitRows rows;
  ConstTensorView q;
  TensorView out;  // where finished rows go, and
  LseView lse;     // null data: not wanted
  // Of unit u, from first_sink(u) on; null: none.
  const float* sinks = nullptr;
  std::int64_t kv_heads = 1;  // of the problem

  WorkCut cut;
  std::int64_t most_units = 0;     // that the accumulators are laid out for
  std::byte* sums = nullptr;       // accumulators, see BlockAttention
  std::vector<std::uint8_t> used;  // by panel state: emptied since the lap (or, at once, the item) began
  bool finished = false;

  float sink(std::int64_t unit, std::int64_t member) const noexcept;
};

// The caller's own tensors.
void read_and_write(QuerySet& set, const RankTensors& tensors, const Problem& problem);

// A parcel of queries, `units` of them, of a rank that owns `tokens`; and the parcel of rows made of it.
ConstTensorView parcel_queries(const Problem& problem, const std::byte* data, std::int64_t tokens,
                               std::int64_t units);
struct RowsParcel {
  TensorView out;
  LseView lse;
};
RowsParcel parcel_rows(const Problem& problem, std::byte* data, const Shard& queries, std::int64_t units);

}  // namespace kvring
