// kvring plan: what each schedule would cost on a machine, and what to do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/calibrate.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/plan_options.h"
#include "cli/plan_report.h"
#include "cli/team.h"
#include "cli/values.h"
#include "io/text_file.h"
#include "kvring/error.h"
#include "planner/regimes.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Prices every schedule on a machine and says what to run, and why.

Examples:
  kvring plan --machine h100 --ranks 8 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 131072 --causal
  kvring plan --machine a100 --q-heads 64 --kv-heads 8 --head-dim 128 --seq-len 1000000 --causal --layers 80 \
    --params 70e9
  kvring plan --machine cpu-100gbe --ranks 16 --q-heads 32 --head-dim 128 --seq-len 65536 --plot regimes.svg
  mpirun -n 2 kvring plan --calibrate here.json)";

struct Options {
  PlanOptions plan;
  std::optional<std::string> plot, calibrate;
  bool json = false;
};

void refuse_flags_of_a_plan(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--calibrate" || name == "--ranks" || name == "--json") continue;
    throw InvalidArgument(fmt::format(
        "--calibrate measures this machine and plans nothing: it goes with --ranks and --json, not "
        "with {}; give the file that it writes to --machine in a run of its own",
        name));
  }
}

// Under mpirun every process measures, and the one with rank 0 writes.
int run_calibrate(const Options& options) {
  check_output("--calibrate", options.calibrate);
  TeamSpec spec;
  if (options.plan.ranks) spec.ranks = parse_count("--ranks", *options.plan.ranks, kMostPlanRanks);
  const std::unique_ptr<Team> team = make_team(spec);
  const auto machine = calibrate(*team);
  if (!machine) return kDone;
  write_text_file(*options.calibrate, machine->dump(2) + "\n");
  if (options.json) {
    fmt::print("{}\n", machine->dump(2));
  } else {
    fmt::print("wrote {}\n", *options.calibrate);
  }
  return kDone;
}

int run_plan(const Options& options) {
  check_output("--plot", options.plot, options.plan.machine);
  const PlanQuery query = understand(options.plan);
  const Plan plan = make_plan(query);
  if (options.plot) write_text_file(*options.plot, regimes_svg(make_regimes(query, plan.placement)));
  if (options.json) {
    fmt::print("{}\n", plan_json(query, plan).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", plan_text(query, plan));
  }
  return kDone;
}

}  // namespace

Command add_plan(CLI::App& program) {
  CLI::App* app = program.add_subcommand("plan", kDescription);
  auto o = std::make_shared<Options>();
  add_machine_flags(*app, o->plan);
  add_workload_flags(*app, o->plan);
  add_model_flags(*app, o->plan);
  app->add_option("--plot", o->plot, "Draw which schedule wins over slice length and link speed")
      ->type_name("F.svg")
      ->group("Output");
  app->add_option("--calibrate", o->calibrate,
                  "Measure this machine, with MPI ranks under mpirun, for --machine")
      ->type_name("F.json")
      ->group("Machine");
  app->add_flag("--json", o->json, "Print one JSON object")->disable_flag_override()->group("Output");
  const auto run = [app, o] {
    if (!o->calibrate) return run_plan(*o);
    refuse_flags_of_a_plan(*app);
    return run_calibrate(*o);
  };
  return {app, run, [o] { return o->json; }};
}

}  // namespace kvring::cli
