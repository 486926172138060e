// kvring attend: exact attention of a file over a ring of ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/message.h"
#include "cli/progress.h"
#include "cli/rank_work.h"
#include "cli/report.h"
#include "cli/same_job.h"
#include "cli/team.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Exact attention of a file over a ring of ranks.

Examples:
  kvring attend --input qkv.safetensors --causal --ranks 4 --output result.safetensors
  kvring attend --q q.npy --k k.npy --v v.npy --window 4095,0 --output out.npy --lse lse.npy
  kvring attend --input qkv.safetensors --causal --ranks 4 --trace run.json
  mpirun -n 8 kvring attend --input qkv.safetensors --causal --rank-memory 2GiB --output result.safetensors

Without --output it computes, and prints digests of the result.)";

int run_attend(const JobOptions& options) {
  const Settings settings = understand(options);
  const std::unique_ptr<Team> team = make_team(settings.team);
  std::optional<Job> job;
  RankWorks works(team->ranks(), settings.record);
  std::vector<Json> reports;  // on rank 0
  Progress progress("attend", team->has_rank_0() && !options.quiet && !options.json);
  team->run({[&] {
               job.emplace(open_job(options, settings, *team));
               if (!team->has_rank_0() || options.quiet) return;
               for (const std::string& note : job->notes) message("kvring: note: {}\n", note);
             },
             [&](Transport& transport) {
               agree_on_job(transport, [&] { return given_files("attend", options, *job); });
               const int rank = transport.rank();
               RankWork& work = works.add(*job, transport);
               work.open_outputs();
               work.load();
               work.attend(rank == 0 ? [&](double share) { progress.update(share); }
                                     : std::function<void(double)>());
               std::vector<Json> all = work.gather_reports();
               work.write_outputs();
               if (job->trace) work.write_trace(trace_info(*job, *team));
               work.commit_outputs();
               if (rank == 0) reports = std::move(all);
             },
             [&](Transport& transport, const std::string& reason) { works.failed(transport, reason); },
             [&](Transport& transport) { works.release(transport); }});
  if (!team->has_rank_0()) return kDone;
  const Json json = attend_json(*job, *team, reports);
  progress.finish();
  fmt::print("{}", options.json ? json.dump(2) + "\n" : attend_text(json));
  return kDone;
}

}  // namespace

Command add_attend(CLI::App& program) {
  CLI::App* app = program.add_subcommand("attend", kDescription);
  auto options = std::make_shared<JobOptions>();
  add_job_flags(*app, *options);
  add_output_flags(*app, *options);
  return {app, [options] { return run_attend(*options); }, [options] { return options->json; }};
}

}  // namespace kvring::cli
