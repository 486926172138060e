#include "cli/plan_options.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <string_view>

#include "cli/flag.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "problem/checks.h"

namespace kvring::cli {
namespace {

using Text = std::optional<std::string>;

const std::int64_t kMostTokens = Problem().tile * kMaxTiles;  // of a document
// Far above any model; it keeps products of a few of them in 64 bits.
constexpr std::int64_t kMostWidth = 1 << 24;

std::int64_t number(const char* flag, const Text& text, std::int64_t otherwise, std::int64_t most) {
  if (!text) return otherwise;
  const std::int64_t value = parse_integer(flag, *text);
  if (value < 1 || value > most)
    throw InvalidArgument(fmt::format("{} is {}; it must be 1 to {}", flag, value, most));
  return value;
}

std::int64_t required(const char* flag, const Text& text, const char* example, std::int64_t most) {
  if (!text) throw InvalidArgument(fmt::format("{} is missing: {}", flag, example));
  return number(flag, text, 1, most);
}

Mesh parse_mesh(const std::string& text) {
  Mesh mesh;
  std::string_view rest = text;
  std::set<std::string_view> given;
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    std::int64_t* degree = name == "tp"   ? &mesh.tensor
                           : name == "pp" ? &mesh.pipeline
                           : name == "dp" ? &mesh.data
                                          : nullptr;
    if (degree == nullptr || equals == part.size())
      throw InvalidArgument(
          fmt::format("--mesh is '{}'; it must be degrees of tensor, pipeline and data parallelism, such as "
                      "tp=8,pp=2,dp=4",
                      text));
    if (!given.insert(name).second)
      throw InvalidArgument(fmt::format("--mesh is '{}'; it gives {} twice", text, name));
    *degree =
        number(fmt::format("{} of --mesh", name).c_str(), std::string(part.substr(equals + 1)), 1, 1 << 20);
    if (comma == rest.size()) return mesh;
    rest.remove_prefix(comma + 1);
  }
}

// Parameter counts are often written 70e9.
std::int64_t parse_params(const std::string& text) {
  const double value = parse_real("--params", text);
  if (!(value >= 1 && value <= 1e15 && value == std::floor(value)))
    throw InvalidArgument(fmt::format(
        "--params is {}; it must be a whole number of parameters up to 1e15, such as 8030261248 or 70e9",
        text));
  return static_cast<std::int64_t>(value);
}

std::optional<Model> understand_model(const PlanOptions& o, const Problem& p) {
  if (o.zero && !o.training)
    throw InvalidArgument("--zero cuts what training holds; give --training with it");
  if (!(o.hidden || o.ffn || o.vocab || o.params || o.training)) return {};
  if (!o.params && !(o.hidden && o.ffn && o.vocab))
    throw InvalidArgument(fmt::format(
        "{} is missing: a whole model needs --params, or --hidden, --ffn and --vocab", !o.hidden ? "--hidden"
                                                                                       : !o.ffn  ? "--ffn"
                                                                                                : "--vocab"));
  if (o.params && (o.ffn || o.vocab))
    throw InvalidArgument(
        fmt::format("--params counts all parameters, so that {} would change nothing; leave it out",
                    o.ffn ? "--ffn" : "--vocab"));
  Model model;
  model.hidden = number("--hidden", o.hidden, p.q_heads * p.head_dim, kMostWidth);
  model.ffn = number("--ffn", o.ffn, 0, kMostWidth);
  model.vocab = number("--vocab", o.vocab, 0, kMostWidth);
  if (o.params) model.params = parse_params(*o.params);
  model.training = o.training;
  if (o.zero) model.zero = static_cast<int>(parse_choice("--zero", *o.zero, {"0", "1", "2", "3"}));
  return model;
}

LayoutSpec understand_layout(const Text& text) {
  constexpr LayoutKind kKinds[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};
  LayoutSpec spec;
  if (text) spec.kind = kKinds[parse_choice("--layout", *text, {"contiguous", "zigzag", "striped"})];
  return spec;
}

Problem understand_problem(const PlanOptions& o) {
  const std::vector<std::string> dtypes = {"f32", "bf16", "f16"};
  Problem p;
  p.q_heads = required("--q-heads", o.q_heads, "query heads of a layer, such as 32", kMostWidth);
  p.head_dim = required("--head-dim", o.head_dim, "dim of a head, such as 128", kMostWidth);
  p.q_len = required("--seq-len", o.seq_len, "queries, such as 131072; 1 for decoding", kMostTokens);
  p.kv_heads = number("--kv-heads", o.kv_heads, p.q_heads, kMostWidth);
  p.value_dim = number("--value-dim", o.value_dim, p.head_dim, kMostWidth);
  p.kv_len = number("--kv-len", o.kv_len, p.q_len, kMostTokens);
  p.batch = number("--batch", o.batch, 1, kMostWidth);
  p.causal = o.causal;
  p.kv_dtype = parse_dtype(dtypes[o.dtype ? parse_choice("--dtype", *o.dtype, dtypes) : 1]);
  p.q_dtype = p.out_dtype = p.kv_dtype;
  validate(p);
  if (p.causal && p.kv_len < p.q_len)
    throw InvalidArgument(
        fmt::format("--kv-len is {}, less than --seq-len {}: with --causal the first queries would "
                    "see nothing; keys are those of the queries and of what came before",
                    p.kv_len, p.q_len));
  return p;
}

}  // namespace

void add_machine_flags(CLI::App& app, PlanOptions& o) {
  std::string names;
  for (const Machine& machine : machine_catalogue()) names += (names.empty() ? "" : ", ") + machine.name;
  const char* group = "Machine";
  add(app, group, "--machine", o.machine, "NAME|FILE", "")
      ->description("Of the catalogue (" + names + "), or a JSON file in its format");
  add(app, group, "--ranks", o.ranks, "P|auto", "Ring size (default auto: as few as hold it)");
  add(app, group, "--ranks-per-node", o.ranks_per_node, "N", "Devices per node (default: the machine's)");
}

void add_workload_flags(CLI::App& app, PlanOptions& o) {
  const char* group = "Attention";
  add(app, group, "--q-heads", o.q_heads, "H", "Query heads of a layer");
  add(app, group, "--kv-heads", o.kv_heads, "H", "Key and value heads (default: as many)");
  add(app, group, "--head-dim", o.head_dim, "D", "Dim of queries and keys");
  add(app, group, "--value-dim", o.value_dim, "D", "Dim of values (default: that of keys)");
  add(app, group, "--dtype", o.dtype, "f32|bf16|f16", "Of all tensors (default bf16)");
  add(app, group, "--seq-len", o.seq_len, "N", "Queries: the sequence, or the new tokens of a turn");
  add(app, group, "--kv-len", o.kv_len, "N",
      "Keys: those tokens and a cache before them (default: --seq-len)");
  add(app, group, "--batch", o.batch, "B", "Sequences at a time (default 1)");
  add(app, group, "--layers", o.layers, "L", "Layers (default 1)");
  app.add_flag("--causal", o.causal, "Query i sees keys up to i + kv length - q length")
      ->disable_flag_override()
      ->group(group);
  add(app, group, "--layout", o.layout, "zigzag|contiguous|striped",
      "Who owns which tokens (default zigzag)");
}

void add_model_flags(CLI::App& app, PlanOptions& o) {
  const char* group = "Whole model";
  add(app, "Machine", "--mesh", o.mesh, "tp=T,pp=P,dp=D",
      "Tensor, pipeline and data parallelism around the ring (default: none, or found)");
  add(app, group, "--params", o.params, "N", "Parameters, such as 70e9 (default: from the shapes)");
  add(app, group, "--hidden", o.hidden, "N", "Width of the hidden state (default: query heads x dim)");
  add(app, group, "--ffn", o.ffn, "N", "Inner width of gated feed-forward blocks");
  add(app, group, "--vocab", o.vocab, "N", "Size of the vocabulary");
  app.add_flag("--training", o.training, "Gradients, optimizer and activations of all layers too")
      ->disable_flag_override()
      ->group(group);
  add(app, group, "--zero", o.zero, "0|1|2|3", "Stage of ZeRO in training (default 0)");
}

PlanQuery understand(const PlanOptions& o) {
  if (!o.machine)
    throw InvalidArgument("--machine is missing: a name such as h100, or a JSON file; see --help");
  PlanQuery query;
  query.machine = find_machine(*o.machine);
  query.workload.problem = understand_problem(o);
  query.workload.layout = understand_layout(o.layout);
  query.workload.layers = number("--layers", o.layers, 1, kMostWidth);
  query.workload.model = understand_model(o, query.workload.problem);
  if (o.ranks && *o.ranks != "auto") query.ranks = parse_count("--ranks", *o.ranks, kMostPlanRanks);
  if (o.ranks_per_node) query.ranks_per_node = parse_count("--ranks-per-node", *o.ranks_per_node, 1 << 20);
  if (o.mesh) query.mesh = parse_mesh(*o.mesh);
  return query;
}

}  // namespace kvring::cli
