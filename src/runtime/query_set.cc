#include "runtime/query_set.h"

#include <limits>

#include "schedule/parcel.h"

namespace kvring {

float QuerySet::sink(std::int64_t unit, std::int64_t member) const noexcept {
  if (sinks == nullptr) return -std::numeric_limits<float>::infinity();
  return sinks[unit % kv_heads * panels->group() + member];
}

void read_and_write(QuerySet& set, const RankTensors& tensors, const Problem& problem) {
  set.rows = {0, problem.kv_heads};
  set.q = tensors.q;
  set.out = tensors.out;
  set.lse = tensors.lse;
}

ConstTensorView parcel_queries(const Problem& p, const std::byte* data, std::int64_t tokens,
                               std::int64_t units) {
  const std::int64_t group = p.q_heads / p.kv_heads;
  return dense_view<const void>(data, p.q_dtype, {units, tokens, group, p.head_dim});
}

RowsParcel parcel_rows(const Problem& p, std::byte* data, const Shard& queries, std::int64_t units) {
  const std::int64_t group = p.q_heads / p.kv_heads, tokens = queries.tokens();
  auto* lse = reinterpret_cast<float*>(data + rows_lse_offset(p, queries, units));
  return {dense_view<void>(data, p.out_dtype, {units, tokens, group, p.value_dim}),
          dense_lse_view(lse, {units, group, tokens})};
}

}  // namespace kvring
