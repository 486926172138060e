#include "cli/job_options.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "cli/flag.h"
#include "cli/values.h"
#include "io/tensor_info.h"
#include "problem/support.h"
#include "transport/deadline.h"

namespace kvring::cli {
namespace {

const std::vector<std::string> kDTypes = {"f32", "bf16", "f16"};

std::int64_t integer_in(std::string_view flag, const std::string& text, std::int64_t least,
                        std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  const std::int64_t value = parse_integer(flag, text);
  if (value < least || value > most)
    throw InvalidArgument(most == std::numeric_limits<std::int64_t>::max()
                              ? fmt::format("{} is {}; it must be {} or more", flag, value, least)
                              : fmt::format("{} is {}; it must be {} to {}", flag, value, least, most));
  return value;
}

void understand_inputs(const JobOptions& o) {
  const bool some = o.q || o.k || o.v;
  if (o.input && some)
    throw InvalidArgument("--input already holds q, k and v; give either --input, or --q, --k and --v");
  if (o.input && file_format(*o.input) == FileFormat::kNpy)
    throw InvalidArgument(fmt::format(
        "--input is {}, which holds one tensor; give a .safetensors file, or --q, --k and --v", *o.input));
  if (!o.input && !(o.q && o.k && o.v))
    throw InvalidArgument(
        some ? fmt::format("{} is missing: --q, --k and --v go together", !o.q   ? "--q"
                                                                          : !o.k ? "--k"
                                                                                 : "--v")
             : "no input: give --input F.safetensors with tensors q, k and v, or --q, --k and --v F.npy");
}

void understand_mask(const JobOptions& o, Problem& p) {
  p.causal = o.causal;
  if (o.window) {
    const std::vector<std::int64_t> window = parse_list("--window", *o.window);
    if (window.size() != 2)
      throw InvalidArgument(fmt::format(
          "--window is '{}'; it must be LEFT,RIGHT, such as 4095,0 (-1 for unlimited)", *o.window));
    p.window_left = window[0];
    p.window_right = window[1];
  }
  if (o.cu_seqlens_q) p.cu_seqlens_q = parse_list("--cu-seqlens-q", *o.cu_seqlens_q);
  if (o.cu_seqlens_kv) p.cu_seqlens_kv = parse_list("--cu-seqlens-kv", *o.cu_seqlens_kv);
  if (o.softcap) p.softcap = parse_real("--softcap", *o.softcap);
  if (o.softmax_scale) p.softmax_scale = parse_real("--softmax-scale", *o.softmax_scale);
  p.has_sinks = o.sinks.has_value();
}

LayoutSpec understand_layout(const JobOptions& o) {
  LayoutSpec spec;
  const std::vector<std::string> kinds = {"contiguous", "zigzag", "striped"};
  constexpr LayoutKind kKinds[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};
  if (o.layout) spec.kind = kKinds[parse_choice("--layout", *o.layout, kinds)];
  if (o.stripe) spec.stripe = integer_in("--stripe", *o.stripe, 1);
  if (o.cut) spec.cut = parse_choice("--cut", *o.cut, {"tiles", "tokens"}) == 0 ? Cut::kTiles : Cut::kTokens;
  return spec;
}

RingOptions understand_ring(const JobOptions& o) {
  constexpr int kMostThreads = 4096;
  RingOptions ring;
  if (o.schedule) ring.schedule = parse_schedule(*o.schedule);
  if (o.heads_per_lap) ring.heads_per_lap = integer_in("--heads-per-lap", *o.heads_per_lap, 0);
  if (o.threads) ring.threads = static_cast<int>(integer_in("--threads", *o.threads, 0, kMostThreads));
  if (o.rank_memory) ring.rank_memory = parse_bytes("--rank-memory", *o.rank_memory);
  return ring;
}

TeamSpec understand_team(const JobOptions& o) {
  TeamSpec team;
  if (o.ranks) team.ranks = integer_in("--ranks", *o.ranks, 1);
  if (o.transport) {
    parse_choice("--transport", *o.transport, {"inproc", "mpi"});
    team.transport = o.transport;
  }
  if (o.mpi_progress)
    team.inline_progress = parse_choice("--mpi-progress", *o.mpi_progress, {"thread", "inline"}) == 1;
  if (o.timeout) team.timeout_s = parse_real("--timeout", *o.timeout);
  constexpr double kShortestTimeout = 0.1;
  if (!(team.timeout_s >= kShortestTimeout && team.timeout_s <= ProgressClock::kLongestDeadline))
    throw InvalidArgument(fmt::format(
        "--timeout is {}; it must be seconds, from {} to {:.0f} (within less, ranks that only wait "
        "for a core would be taken for dead)",
        *o.timeout, kShortestTimeout, ProgressClock::kLongestDeadline));
  return team;
}

}  // namespace

void add_input_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Input";
  add(app, group, "--input", o.input, "F.safetensors", "File with tensors q, k and v");
  add(app, group, "--q", o.q, "F.npy", "Queries: (batch, seqlen, heads, dim), or without batch");
  add(app, group, "--k", o.k, "F.npy", "Keys");
  add(app, group, "--v", o.v, "F.npy", "Values; their dim may differ");
  add(app, group, "--sinks", o.sinks, "F.npy", "One f32 logit per query head that joins the denominator");
}

void add_attention_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Attention";
  app.add_flag("--causal", o.causal, "Query i sees keys up to i + kv length - q length")
      ->disable_flag_override()
      ->group(group);
  add(app, group, "--window", o.window, "L,R", "See L keys to the left and R to the right; -1: unlimited");
  add(app, group, "--softcap", o.softcap, "X", "Logits become X tanh(logit / X)");
  add(app, group, "--softmax-scale", o.softmax_scale, "X", "Factor of the logits (default 1/sqrt(dim))");
  add(app, group, "--cu-seqlens-q", o.cu_seqlens_q, "A,B,..",
      "Packed documents: where they start, and the end; or @FILE");
  add(app, group, "--cu-seqlens-kv", o.cu_seqlens_kv, "A,B,..", "The same for keys and values");
  add(app, group, "--output-dtype", o.output_dtype, "f32|bf16|f16", "Of the output (default: that of q)");
  add(app, group, "--accumulation", o.accumulation, "reproducible|online",
      "Same bits at every ring size (default), or less memory");
  add(app, group, "--tile", o.tile, "N", "Keys per tile; part of the numerical contract (default 512)");
}

void add_ring_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Ring";
  add(app, group, "--ranks", o.ranks, "P", "Ring size (default 1, or what mpirun started)");
  add(app, group, "--layout", o.layout, "zigzag|contiguous|striped",
      "Who owns which tokens (default zigzag)");
  add(app, group, "--stripe", o.stripe, "N", "Tokens per stripe (default one tile)");
  add(app, group, "--cut", o.cut, "tiles|tokens", "Shards are whole tiles (default), or equal to a token");
  add(app, group, "--schedule", o.schedule, "ring|all-gather|pass-q|ulysses|tree",
      "What moves when (default ring); kvring plan says which pays");
  add(app, group, "--heads-per-lap", o.heads_per_lap, "H", "KV heads that one lap carries (default: chosen)");
  add(app, group, "--threads", o.threads, "T", "Compute threads per rank (default: cores / ranks)");
  add(app, group, "--rank-memory", o.rank_memory, "SIZE", "Bytes a rank may hold, such as 512MiB");
}

void add_transport_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Ring";
  add(app, group, "--transport", o.transport, "inproc|mpi", "Threads, or MPI (default under mpirun)");
  add(app, group, "--timeout", o.timeout, "S", "Give up after S seconds without progress (default 30)");
  add(app, group, "--mpi-progress", o.mpi_progress, "thread|inline",
      "With MPI: who calls it while a rank computes (default thread)");
  add(app, group, "--record", o.record, "DIR",
      "On failure each rank writes DIR/rank-R.json, for kvring diagnose");
}

void add_message_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Messages";
  app.add_flag("--json", o.json, "Print one JSON object")->disable_flag_override()->group(group);
  app.add_flag("--quiet", o.quiet, "No progress and no notes")->disable_flag_override()->group(group);
}

void add_job_flags(CLI::App& app, JobOptions& o) {
  add_input_flags(app, o);
  add_attention_flags(app, o);
  add_ring_flags(app, o);
  add_transport_flags(app, o);
  add_message_flags(app, o);
}

void add_output_flags(CLI::App& app, JobOptions& o) {
  const char* group = "Output";
  add(app, group, "--output", o.output, "F", ".safetensors gets out and lse; .npy gets out");
  add(app, group, "--lse", o.lse, "F.npy", "Gets lse, beside an --output that is .npy");
  add(app, group, "--trace", o.trace, "F.json",
      "Gets what each rank did when, for Perfetto and kvring trace");
}

Settings understand(const JobOptions& o) {
  understand_inputs(o);
  return understand_without_input(o);
}

Settings understand_without_input(const JobOptions& o) {
  Settings settings;
  understand_mask(o, settings.problem);
  if (o.tile) settings.problem.tile = parse_integer("--tile", *o.tile);
  if (o.accumulation && parse_choice("--accumulation", *o.accumulation, {"reproducible", "online"}) == 1)
    settings.problem.accumulation = Accumulation::kOnline;
  if (o.output_dtype)
    settings.out_dtype = parse_dtype(kDTypes[parse_choice("--output-dtype", *o.output_dtype, kDTypes)]);
  settings.layout = understand_layout(o);
  settings.ring = understand_ring(o);
  settings.team = understand_team(o);
  settings.record = o.record;
  return settings;
}

}  // namespace kvring::cli
