#include "runtime/rank_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>

#include "kvring/error.h"

namespace kvring {
namespace {

template <typename Void>
void check_tensor(const char* name, const BasicTensorView<Void>& t, DType dtype,
                  std::array<std::int64_t, 4> shape) {
  if (t.shape != shape) {
    throw InvalidArgument(fmt::format("{} has shape ({}); it must be ({}) (batch, tokens, heads, dim)", name,
                                      fmt::join(t.shape, ", "), fmt::join(shape, ", ")));
  }
  if (t.dtype != dtype) {
    throw InvalidArgument(
        fmt::format("{} is {}; the problem says {}", name, dtype_name(t.dtype), dtype_name(dtype)));
  }
  if (t.data == nullptr && t.elements() > 0) throw InvalidArgument(fmt::format("{} has no data", name));
  if (t.stride[3] != 1 && shape[3] > 1) {
    throw InvalidArgument(
        fmt::format("{} has a stride of {} in its last dimension; it must be 1", name, t.stride[3]));
  }
}

void check_sinks(const Problem& p, const float* sinks) {
  if (p.has_sinks != (sinks != nullptr)) {
    throw InvalidArgument(p.has_sinks ? "the problem has sinks and the call passes none"
                                      : "the call passes sinks and the problem has none (has_sinks)");
  }
  for (std::int64_t h = 0; sinks && h < p.q_heads; ++h) {
    if (std::isnan(sinks[h]) || sinks[h] == std::numeric_limits<float>::infinity())
      throw InvalidArgument(fmt::format("the sink of head {} is {}; it must be finite or -inf", h, sinks[h]));
  }
}

}  // namespace

void check_tensors(const Problem& p, std::int64_t q_tokens, std::int64_t kv_tokens, const RankTensors& t) {
  check_tensor("q", t.q, p.q_dtype, {p.batch, q_tokens, p.q_heads, p.head_dim});
  if (t.packed.data == nullptr) {
    check_tensor("k", t.k, p.kv_dtype, {p.batch, kv_tokens, p.kv_heads, p.head_dim});
    check_tensor("v", t.v, p.kv_dtype, {p.batch, kv_tokens, p.kv_heads, p.value_dim});
  }
  check_tensor("out", t.out, p.out_dtype, {p.batch, q_tokens, p.q_heads, p.value_dim});
  const std::array<std::int64_t, 3> lse_shape{p.batch, p.q_heads, q_tokens};
  if (t.lse.data && t.lse.shape != lse_shape) {
    throw InvalidArgument(fmt::format("lse has shape ({}); it must be ({}) (batch, heads, tokens)",
                                      fmt::join(t.lse.shape, ", "), fmt::join(lse_shape, ", ")));
  }
  for (const ConstTensorView* input : {&t.q, &t.k, &t.v}) {
    if (t.out.data && t.out.data == input->data) throw InvalidArgument("out shares the memory of an input");
  }
  check_sinks(p, t.sinks);
}

}  // namespace kvring
