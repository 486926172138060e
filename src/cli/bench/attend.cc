// kvring bench attend: a whole job on random input, on a ring in this process and on one rank.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/bench/case.h"
#include "cli/bench/machine.h"
#include "cli/bench/ring_run.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/job_options.h"
#include "cli/progress.h"
#include "cli/values.h"
#include "problem/support.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(A whole job on random input: a ring in this process, and one rank.

Examples:
  kvring bench attend --shape 1,8192,8,128 --causal --ranks 2
  kvring bench attend --shape 1,16384,8,64 --kv-shape 1,16384,2,64 --dtype bf16 --ranks 4 --repeat 9 --json

Times what `kvring attend` reports as the time of attention: everything but reading and writing files.)";

struct BenchAttendOptions {
  JobOptions job;
  std::optional<std::string> shape, kv_shape, value_dim, dtype, repeat;
};

struct Request {
  Problem problem;
  LayoutSpec layout;
  RingOptions ring;
  std::int64_t ranks = 1;
  int repeats = 5;
};

Request understand(const BenchAttendOptions& o) {
  constexpr int kMostRepeats = 1000;
  if (!o.shape)
    throw InvalidArgument("--shape is missing: batch,seqlen,heads,dim of q, such as 1,8192,8,128");
  const Settings settings = understand_without_input(o.job);
  Request request{settings.problem, settings.layout, settings.ring, settings.team.ranks.value_or(1)};
  const auto q = parse_shape("--shape", *o.shape);
  const auto kv = o.kv_shape ? parse_shape("--kv-shape", *o.kv_shape) : q;
  for (const std::size_t axis : {0, 3}) {
    if (q[axis] != kv[axis])
      throw InvalidArgument(fmt::format("--shape has {0} {1} and --kv-shape has {0} {2}; they must agree",
                                        axis == 0 ? "batch" : "dim", q[axis], kv[axis]));
  }
  Problem& p = request.problem;
  p.batch = q[0];
  p.q_len = q[1];
  p.kv_len = kv[1];
  p.q_heads = q[2];
  p.kv_heads = kv[2];
  p.head_dim = q[3];
  p.value_dim = o.value_dim ? parse_integer("--value-dim", *o.value_dim) : q[3];
  const std::vector<std::string> dtypes = {"f32", "bf16", "f16"};
  if (o.dtype) p.q_dtype = parse_dtype(dtypes[parse_choice("--dtype", *o.dtype, dtypes)]);
  p.kv_dtype = p.q_dtype;
  p.out_dtype = settings.out_dtype.value_or(p.q_dtype);
  if (o.repeat) request.repeats = parse_count("--repeat", *o.repeat, kMostRepeats);
  validate(p);
  check_heads_per_lap(request.ring, p);
  return request;
}

// One of the two rings, measured.
struct Measured {
  Json setup;
  int threads = 0;  // of all ranks
  RingSamples samples;
  std::string peak_name;
  Ceiling peak_gflops;  // of as many threads as have a core
  double wall_s = 0, cpu_s = 0, gflops = 0;
};

Measured measure(const Request& request, std::int64_t asked_ranks, int threads, Progress& progress) {
  const std::unique_ptr<Team> team = make_team({asked_ranks, "inproc"});
  const int ranks = team->ranks();
  const Layouts layouts = make_layouts(request.layout, request.problem, ranks);
  require_supported(request.problem, layouts, request.ring.schedule);
  RingOptions ring = request.ring;
  ring.threads = threads == 0 ? team->cores_per_rank() : threads;
  const Setup setup{request.problem, layouts, ring};
  Measured m;
  m.setup = setup_json(setup, *team);
  m.threads = ranks * ring.threads;
  const int running = std::min(m.threads, cores());
  const Peaks before = measure_peaks(running);
  m.samples = time_ring(setup, *team, request.repeats, [&](double share) { progress.update(share); });
  const Peaks after = measure_peaks(running);
  progress.finish();
  m.peak_name = ceiling_name(request.problem.kv_dtype, before);
  m.peak_gflops = {ceiling_of(m.peak_name, before), ceiling_of(m.peak_name, after)};
  m.wall_s = median_wall_s(m.samples.samples);
  m.cpu_s = median_cpu_s(m.samples.samples);
  m.gflops = needed_flops(request.problem) / m.wall_s * 1e-9;
  return m;
}

// Where the time of the median run went, as the ranks' mean.
Json phases_json(const Measured& m) {
  double compute = 0, wait = 0;
  std::int64_t sent = 0;
  for (const RankReport& r : m.samples.per_rank) {
    compute += r.compute_s;
    wait += r.exposed_wait_s;
    sent += r.bytes_sent;
  }
  const auto ranks = static_cast<double>(m.samples.per_rank.size());
  return {{"compute_s", compute / ranks}, {"exposed_wait_s", wait / ranks}, {"bytes_sent", sent}};
}

Json measured_json(const Measured& m) {
  return {{"threads_in_all", m.threads},
          {"wall_s", m.wall_s},
          {"cpu_s", m.cpu_s},
          {"gflops", m.gflops},
          {"peak", m.peak_name},
          {"peak_gflops", {{"before", m.peak_gflops.before}, {"after", m.peak_gflops.after}}},
          {"fraction_of_peak", m.gflops / m.peak_gflops.value()},
          {"marks", marks_of(m.peak_gflops, {m.wall_s, m.cpu_s}, std::min(m.threads, cores()))}};
}

Json bench_json(const Request& request, const Measured& ring, const std::optional<Measured>& one) {
  Json json = ring.setup;
  json["bits_invariant"] = ring.samples.bits_invariant;
  json["machine"] = machine_json();
  json["repeats"] = request.repeats;
  json.update(measured_json(ring));
  json.update(phases_json(ring));
  json["per_rank"] = Json::array();
  for (const RankReport& report : ring.samples.per_rank) json["per_rank"].push_back(rank_json(report));
  json["one_rank"] = one ? measured_json(*one) : Json();
  json["time_over_one_rank"] = one ? Json(ring.wall_s / one->wall_s) : Json();
  return json;
}

std::string measured_text(const std::string& name, const Json& m, int repeats) {
  const auto marks = m["marks"].get<std::vector<std::string>>();
  return fmt::format(
      "{:<12} {:.4g} s (median of {}), {:.1f} GFLOP/s, {:.3f} of the {} peak of {} threads{}\n", name,
      m["wall_s"].get<double>(), repeats, m["gflops"].get<double>(), m["fraction_of_peak"].get<double>(),
      m["peak"].get<std::string>(), std::min(m["threads_in_all"].get<int>(), cores()),
      marks.empty() ? "" : fmt::format(" [{}]", fmt::join(marks, ", ")));
}

std::string bench_text(const Json& run) {
  const int repeats = run["repeats"].get<int>();
  const int ranks = run["ranks"].get<int>();
  std::string text = machine_text(run["machine"]) + "\n" + setup_text(run) + "\n" +
                     measured_text(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"), run, repeats);
  if (const Json& one = run["one_rank"]; !one.is_null())
    text +=
        measured_text("1 rank", one, repeats) + fmt::format("{:<12} {:.3f} of the time of one rank\n",
                                                            "ratio", run["time_over_one_rank"].get<double>());
  text += fmt::format(
      "{:<12} computing {:.4g} s, waiting {:.4g} s (mean of the ranks in the median run); {} sent\n",
      "of which", run["compute_s"].get<double>(), run["exposed_wait_s"].get<double>(),
      bytes_text(run["bytes_sent"].get<double>()));
  return text + ranks_text(run["per_rank"]);
}

int run_bench_attend(const BenchAttendOptions& options) {
  require_one_process("bench attend");
  const Request request = understand(options);
  const bool wanted = !options.job.json && !options.job.quiet;
  Progress progress("ring", wanted);
  const Measured ring = measure(request, request.ranks, request.ring.threads, progress);
  std::optional<Measured> one;
  if (request.ranks > 1) {
    Progress again("one rank", wanted);
    Request alone = request;
    alone.ring.rank_memory = 0;  // what one rank needs is not what a rank of the ring may hold
    one = measure(alone, 1, std::min(ring.threads, cores()), again);
  }
  const Json json = bench_json(request, ring, one);
  fmt::print("{}", options.job.json ? json.dump(2) + "\n" : bench_text(json));
  return kDone;
}

}  // namespace

Command add_bench_attend(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("attend", kDescription);
  auto o = std::make_shared<BenchAttendOptions>();
  const auto add = [&](const char* flag, std::optional<std::string>& value, const char* type,
                       const char* help) {
    app->add_option(flag, value, help)->type_name(type)->group("Input");
  };
  add("--shape", o->shape, "B,N,H,D",
      "Batch, seqlen, heads and dim of q, and of k and v unless they say else");
  add("--kv-shape", o->kv_shape, "B,N,H,D", "Shape of k and v");
  add("--value-dim", o->value_dim, "D", "Dim of v (default: that of k)");
  add("--dtype", o->dtype, "f32|bf16|f16", "Default f32");
  add("--repeat", o->repeat, "R", "Timed runs, of which the median counts (default 5)");
  add_attention_flags(*app, o->job);
  add_ring_flags(*app, o->job);
  add_message_flags(*app, o->job);
  return {app, [o] { return run_bench_attend(*o); }, [o] { return o->job.json; }};
}

}  // namespace kvring::cli
