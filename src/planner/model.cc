#include "planner/model.h"

namespace kvring {
namespace {

std::int64_t cut(std::int64_t bytes, std::int64_t parts) { return (bytes + parts - 1) / parts; }

}  // namespace

std::int64_t count_params(const Workload& whole) {
  const Model& m = *whole.model;
  if (m.params > 0) return m.params;
  const Problem& p = whole.problem;
  const std::int64_t attention =
      m.hidden * (p.q_heads * (p.head_dim + p.value_dim) + p.kv_heads * (p.head_dim + p.value_dim));
  return whole.layers * (attention + 3 * m.hidden * m.ffn) + 2 * m.vocab * m.hidden;
}

Ledger model_memory(const ModelCase& c) {
  if (!c.whole.model) return {};
  const Model& m = *c.whole.model;
  const Problem& p = c.share.problem;
  const auto element = static_cast<std::int64_t>(dtype_bytes(p.kv_dtype));
  const std::int64_t params = cut(count_params(c.whole), c.mesh.tensor * c.mesh.pipeline);
  // All ranks of a ring hold the same weights, so ZeRO cuts over them as over data parallel replicas.
  const std::int64_t copies = c.mesh.data * c.ranks;
  const auto from_stage = [&](int stage) { return m.zero >= stage ? copies : 1; };
  Ledger ledger = {{"weights", cut(params * element, from_stage(3))}};
  if (m.training) {
    const std::int64_t adam =
        element == 2 ? 12 : 8;  // two moments in float32, and a float32 copy of 16-bit weights
    ledger.emplace_back("gradients", cut(params * element, from_stage(2)));
    ledger.emplace_back("optimizer", cut(params * adam, from_stage(1)));
  }
  const std::int64_t states = (m.training ? c.share.layers : 1) + 1;
  ledger.emplace_back("activations", states * p.batch * c.tokens * m.hidden * element);
  if (!m.training)
    ledger.emplace_back("kv_cache", (c.share.layers - 1) * p.batch * c.kv_tokens * p.kv_heads *
                                        (p.head_dim + p.value_dim) * element);
  return ledger;
}

}  // namespace kvring
