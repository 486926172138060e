// The flags of `kvring plan`, as typed and as understood; `kvring simulate` shares those of the machine and
// the workload.
#pragma once

#include <optional>
#include <string>

#include "planner/plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
}

namespace kvring::cli {

// As typed. Nothing is converted while parsing, so that every message is ours.
struct PlanOptions {
  std::optional<std::string> machine, ranks, ranks_per_node, mesh;
  std::optional<std::string> q_heads, kv_heads, head_dim, value_dim, dtype, seq_len, kv_len, layers, batch,
      layout;
  bool causal = false;
  std::optional<std::string> hidden, ffn, vocab, params, zero;
  bool training = false;
};

void add_machine_flags(CLI::App& app, PlanOptions& options);
void add_workload_flags(CLI::App& app, PlanOptions& options);
void add_model_flags(CLI::App& app, PlanOptions& options);

// Throws InvalidArgument or Unsupported for a value that makes no sense, InputFile for a bad machine file.
PlanQuery understand(const PlanOptions& options);

}  // namespace kvring::cli
