// kvring verify: the ring's result against float64 attention.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/keep_alive.h"
#include "cli/progress.h"
#include "cli/rank_work.h"
#include "cli/report.h"
#include "cli/row_check.h"
#include "cli/same_job.h"
#include "cli/team.h"
#include "cli/values.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Runs attention as attend does and checks rows of it against float64.

Examples:
  kvring verify --input qkv.safetensors --causal --ranks 4
  kvring verify --input qkv.safetensors --causal --ranks 8 --rows 500 --seed 7 --json

Each row has a bound of its own, derived from its logits and values (docs/numerics.md). Exit code 5 says that
a value is past its bound, or has none. Needs memory for K and V of one head over the whole sequence, on rank 0.)";

struct VerifyOptions {
  JobOptions job;
  std::optional<std::string> rows, seed;
};

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void add_stats(Json& json, const std::string& name, const ErrorStats& stats) {
  json[name + "_max_abs_error"] = finite_or_null(stats.max_abs);
  json[name + "_max_rel_error"] = finite_or_null(stats.max_rel);
  json[name + "_error_over_bound"] = finite_or_null(stats.over_bound);
  json[name + "_bound"] = finite_or_null(stats.bound);
  json[name + "_worst_row"] = {stats.worst.b, stats.worst.s, stats.worst.h};
}

std::string stats_text(const char* name, const ErrorStats& s) {
  return fmt::format("{:>4} {:>14.3e} {:>14.3e} {:>15.3f} {:>12.3e}   b {} s {} h {}\n", name, s.max_abs,
                     s.max_rel, s.over_bound, s.bound, s.worst.b, s.worst.s, s.worst.h);
}

std::string verdict(const RowCheck& check) {
  if (check.passed) return "\nverified: all within their bounds\n";
  if (check.out.over_bound > 1 || check.lse.over_bound > 1) return "\nFAILED: past the bound\n";
  return fmt::format(
      "\nNOT VERIFIED: float32 or the output's dtype may overflow in {} of {} rows, for which there is no "
      "bound\n",
      check.unbounded_rows, check.rows);
}

std::string verify_text(const Json& run, const RowCheck& check) {
  return run_text(run) +
         fmt::format(
             "\n{} rows against float64; the bound is that of the value which comes nearest to its own\n"
             "{:>4} {:>14} {:>14} {:>15} {:>12}   {}\n",
             check.rows, "", "largest error", "relative", "error / bound", "bound", "at") +
         stats_text("out", check.out) + stats_text("lse", check.lse) + verdict(check);
}

// Gathers the sampled rows on rank 0, which checks them; every rank gets the verdict.
RowCheck verify_rows(const Job& job, const RankWork& work, const std::vector<RowId>& sample,
                     Transport& transport, Progress& progress) {
  const std::vector<std::string> packed =
      transport.allgather(pack_rows(sample, work.q_shard(), work.out(), work.lse()), "the sampled rows");
  RowCheck check;
  if (transport.rank() == 0) {
    check = keep_alive(transport, [&] {
      return check_rows(job, unpack_rows(packed, job.problem.value_dim),
                        [&](double share) { progress.update(share); });
    });
  }
  check.passed = transport.allgather(check.passed ? "passed" : "failed", "the verdict")[0] == "passed";
  return check;
}

int run_verify(const VerifyOptions& options) {
  const Settings settings = understand(options.job);
  std::optional<std::int64_t> count;
  if (options.rows) count = parse_integer("--rows", *options.rows);
  if (count && *count < 1) throw InvalidArgument(fmt::format("--rows is {}; it must be 1 or more", *count));
  const std::int64_t seed = options.seed ? parse_integer("--seed", *options.seed) : 0;
  const std::unique_ptr<Team> team = make_team(settings.team);
  std::optional<Job> job;
  std::vector<RowId> sample;
  RankWorks works(team->ranks(), settings.record);
  std::vector<Json> reports;  // these two: on the lowest rank of this process
  RowCheck check;
  const bool wanted = team->has_rank_0() && !options.job.quiet && !options.job.json;
  Progress attending("attend", wanted);
  Progress checking("verify", wanted);
  team->run({[&] {
               job.emplace(open_job(options.job, settings, *team));
               sample = sample_rows(job->problem, count, static_cast<std::uint64_t>(seed));
             },
             [&](Transport& transport) {
               agree_on_job(transport, [&] {
                 std::vector<Given> all = given_files("verify", options.job, *job);
                 all.push_back(given_flag("--rows", options.rows));
                 all.push_back(given_flag("--seed", options.seed));
                 return all;
               });
               const int rank = transport.rank();
               RankWork& work = works.add(*job, transport);
               work.load();
               work.attend(rank == 0 ? [&](double share) { attending.update(share); }
                                     : std::function<void(double)>());
               std::vector<Json> all = work.gather_reports();
               const RowCheck mine = verify_rows(*job, work, sample, transport, checking);
               if (rank != 0 && team->has_rank_0()) return;
               reports = std::move(all);
               check = mine;
             },
             [&](Transport& transport, const std::string& reason) { works.failed(transport, reason); },
             [&](Transport& transport) { works.release(transport); }});
  if (team->has_rank_0()) {
    attending.finish();
    checking.finish();
    Json json = run_json(*job, *team, reports);
    if (!options.job.json) {
      fmt::print("{}", verify_text(json, check));
    } else {
      json["rows"] = check.rows;
      json["unbounded_rows"] = check.unbounded_rows;
      add_stats(json, "out", check.out);
      add_stats(json, "lse", check.lse);
      json["passed"] = check.passed;
      fmt::print("{}\n", json.dump(2));
    }
  }
  return check.passed ? kDone : kVerificationFailed;
}

}  // namespace

Command add_verify(CLI::App& program) {
  CLI::App* app = program.add_subcommand("verify", kDescription);
  auto options = std::make_shared<VerifyOptions>();
  add_job_flags(*app, options->job);
  app->add_option("--rows", options->rows,
                  "Rows (batch, position, head) to check (default: all when few, or 64)")
      ->type_name("N")
      ->group("Check");
  app->add_option("--seed", options->seed, "Which rows (default 0)")->type_name("N")->group("Check");
  return {app, [options] { return run_verify(*options); }, [options] { return options->job.json; }};
}

}  // namespace kvring::cli
