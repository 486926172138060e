// kvring bench kernel: attention of packed blocks against the machine's ceilings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/bench/kernel_report.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/progress.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Attention of packed blocks against the machine's ceilings.

Examples:
  kvring bench kernel
  kvring bench kernel --case f32-full-d64-n8192 --case bf16-causal-d128-n8192-t2 --repeat 9
  kvring bench kernel --quick --json

Without --case it measures the whole table (docs/performance.md), which takes minutes.)";

struct BenchKernelOptions {
  std::vector<std::string> cases;
  std::optional<std::string> repeat, threads;
  bool quick = false, json = false, quiet = false;
};

struct Plan {
  std::vector<KernelCase> cases;
  MeasureOptions measure;
  std::int64_t array_bytes = 0;
};

Plan understand(const BenchKernelOptions& o) {
  constexpr int kRepeats = 5, kMostRepeats = 1000, kMostThreads = 4096;
  constexpr std::int64_t kQuickArray = std::int64_t{32} << 20;
  Plan plan;
  const int threads = o.threads ? parse_count("--threads", *o.threads, kMostThreads) : 1;
  const std::vector<std::string> names = !o.cases.empty() ? o.cases
                                         : o.quick        ? quick_cases()
                                                          : default_cases();
  for (const std::string& name : names) plan.cases.push_back(parse_case(name, threads));
  plan.array_bytes = o.quick ? kQuickArray : uncached_bytes();
  plan.measure.repeats = o.repeat ? parse_count("--repeat", *o.repeat, kMostRepeats) : o.quick ? 1 : kRepeats;
  if (o.quick) plan.measure.least_sample_s = 0;
  plan.measure.memory_bytes = plan.array_bytes;
  return plan;
}

// By which the time of a case is foretold.
double weight(const KernelCase& c) {
  constexpr double kOverhead = 1e9;  // of the ceilings, in operations of the same time
  const std::optional<KernelCase::Suffix> suffix = last_suffix(c);
  return kOverhead + needed_flops(case_problem(c, 1)) +
         (suffix ? needed_flops(case_problem(without(c, *suffix), 1)) : 0.0);
}

int run_bench_kernel(const BenchKernelOptions& options) {
  require_one_process("bench kernel");
  const Plan plan = understand(options);
  double total = 0, done = 0;
  for (const KernelCase& c : plan.cases) total += weight(c);
  Progress progress("bench", !options.json && !options.quiet);
  const ReadBandwidth reads(plan.array_bytes);
  const Json machine = machine_json();
  const Json peak = peak_json(measure_peaks(1), reads.gbytes_per_s(1));
  if (!options.json) fmt::print("{}\n{}\n{}", machine_text(machine), peak_text(peak), table_head());
  Json rows = Json::array(), ratios = Json::array();
  for (const KernelCase& c : plan.cases) {
    const KernelResult result = measure_case(
        c, plan.measure, reads, [&](double share) { progress.update((done + share * weight(c)) / total); });
    done += weight(c);
    progress.finish();
    rows.push_back(row_json(result.row));
    if (result.ratio) ratios.push_back(ratio_json(*result.ratio));
    if (options.json) continue;
    fmt::print("{}{}", row_text(result.row), result.ratio ? ratio_text(*result.ratio) : "");
    std::fflush(stdout);
  }
  if (options.json) {
    const Json json = {{"schema_version", kSchemaVersion},
                       {"version", version()},
                       {"machine", machine},
                       {"peak", peak},
                       {"rows", rows},
                       {"ratios", ratios}};
    fmt::print("{}\n", json.dump(2));
  }
  return kDone;
}

}  // namespace

Command add_bench_kernel(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("kernel", kDescription);
  auto o = std::make_shared<BenchKernelOptions>();
  app->add_option("--case", o->cases, "Which row, such as f32-causal-d128-n8192; may be given more than once")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app->add_option("--repeat", o->repeat, "Timed runs of a case, of which the median counts (default 5)")
      ->type_name("R");
  app->add_option("--threads", o->threads, "Threads of cases whose name has no -t (default 1)")
      ->type_name("T");
  app->add_flag("--quick", o->quick,
                "Small cases, each run once: shows that it works, the figures say little")
      ->disable_flag_override();
  app->add_flag("--json", o->json, "Print one JSON object")->disable_flag_override();
  app->add_flag("--quiet", o->quiet, "No progress")->disable_flag_override();
  return {app, [o] { return run_bench_kernel(*o); }, [o] { return o->json; }};
}

}  // namespace kvring::cli
