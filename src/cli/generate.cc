// kvring generate: synthetic input, streamed to disk.
#include "io/generate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Writes synthetic q, k and v to a file, without holding them in memory.

Examples:
  kvring generate --shape 1,8192,8,128 --kv-shape 1,8192,2,128 --dtype bf16 -o qkv.safetensors
  kvring generate --shape 1,1000,4,64 --kind adversarial --seed 3 -o hard.safetensors

The same flags give the same file on every machine.)";

struct GenerateOptions {
  std::optional<std::string> shape, kv_shape, value_dim, dtype, seed, kind, output;
  bool json = false;
  bool quiet = false;
};

GenerateSpec understand(const GenerateOptions& o) {
  if (!o.shape)
    throw InvalidArgument("--shape is missing: batch,seqlen,heads,dim of q, such as 1,4096,8,128");
  if (!o.output) throw InvalidArgument("-o is missing: the file to write, such as qkv.safetensors");
  GenerateSpec spec;
  spec.q_shape = parse_shape("--shape", *o.shape);
  spec.kv_shape = o.kv_shape ? parse_shape("--kv-shape", *o.kv_shape) : spec.q_shape;
  spec.value_dim = o.value_dim ? parse_integer("--value-dim", *o.value_dim) : spec.kv_shape[3];
  const std::vector<std::string> dtypes = {"f32", "bf16", "f16"};
  if (o.dtype) spec.dtype = parse_dtype(dtypes[parse_choice("--dtype", *o.dtype, dtypes)]);
  if (o.seed) spec.seed = static_cast<std::uint64_t>(parse_integer("--seed", *o.seed));
  if (o.kind && parse_choice("--kind", *o.kind, {"normal", "adversarial"}) == 1)
    spec.kind = GenerateKind::kAdversarial;
  return spec;
}

int run_generate(const GenerateOptions& options) {
  const GenerateSpec spec = understand(options);
  if (const Launch launch = detect_launch(); launch.size > 1)
    throw InvalidArgument(
        fmt::format("{} processes were started ({}), and each would write {}; start one, without mpirun",
                    launch.size, launch.by, *options.output));
  int signal = 0;
  try {
    const InterruptFlag interrupted;
    Progress progress("generate", !options.quiet && !options.json);
    generate(spec, *options.output, [&](double share) {
      signal = interrupted.signal();
      if (signal != 0) throw InputFile(fmt::format("{}: not written: interrupted", *options.output));
      progress.update(share);
    });
  } catch (const InputFile&) {
    if (signal != 0) std::raise(signal);  // nothing is left of the file: end as the signal says
    throw;
  }
  if (options.json) {
    const nlohmann::ordered_json json = {{"schema_version", kSchemaVersion},
                                         {"version", version()},
                                         {"output", *options.output},
                                         {"q_shape", spec.q_shape},
                                         {"k_shape", spec.kv_shape},
                                         {"value_dim", spec.value_dim},
                                         {"dtype", std::string(dtype_name(spec.dtype))},
                                         {"seed", spec.seed}};
    fmt::print("{}\n", json.dump(2));
  } else if (!options.quiet) {
    fmt::print("wrote {}\n", *options.output);
  }
  return kDone;
}

}  // namespace

Command add_generate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("generate", kDescription);
  auto o = std::make_shared<GenerateOptions>();
  const auto add = [&](const char* flag, std::optional<std::string>& value, const char* type,
                       const char* help) { app->add_option(flag, value, help)->type_name(type); };
  add("--shape", o->shape, "B,N,H,D",
      "Batch, seqlen, heads and dim of q, and of k and v unless they say else");
  add("--kv-shape", o->kv_shape, "B,N,H,D", "Shape of k and v");
  add("--value-dim", o->value_dim, "D", "Dim of v (default: that of k)");
  add("--dtype", o->dtype, "f32|bf16|f16", "Default f32");
  add("--seed", o->seed, "N", "Default 0");
  add("--kind", o->kind, "normal|adversarial",
      "Normal deviates (default), or values that are hard on softmax");
  add("-o,--output", o->output, "F.safetensors", "File to write");
  app->add_flag("--json", o->json, "Print one JSON object")->disable_flag_override();
  app->add_flag("--quiet", o->quiet, "No progress and no message")->disable_flag_override();
  return {app, [o] { return run_generate(*o); }, [o] { return o->json; }};
}

}  // namespace kvring::cli
