// A small machine with round figures, for the tests of this folder.
#pragma once

#include "planner/plan.h"

namespace kvring {

// 1 Tflop/s, 1 TB of memory at 1 TB/s; 4 ranks per node, 10 GB/s within a node and 1 GB/s on one card between
// nodes, no latency.
inline Machine round_machine() {
  return parse_machine(R"({"name": "round", "flops_per_s": {"f32": 1e12, "bf16": 1e12}, "memory_bytes": 1e12,
    "memory_bytes_per_s": 1e12, "ranks_per_node": 4, "threads": 1,
    "within_node": {"bytes_per_s": 1e10, "latency_s": 0},
    "between_nodes": {"bytes_per_s": 1e9, "latency_s": 0, "links": 1}})",
                       "round");
}

inline Workload attention(std::int64_t queries, std::int64_t keys, std::int64_t q_heads,
                          std::int64_t kv_heads) {
  Workload w;
  Problem& p = w.problem;
  p.q_len = queries;
  p.kv_len = keys;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  p.head_dim = p.value_dim = 128;
  p.q_dtype = p.kv_dtype = p.out_dtype = DType::kBF16;
  return w;
}

inline const Price& price_of(const std::vector<Price>& prices, const std::string& name) {
  for (const Price& price : prices) {
    if (price.name == name) return price;
  }
  throw std::runtime_error("no price of " + name);
}

}  // namespace kvring
