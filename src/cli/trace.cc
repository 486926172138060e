// kvring trace: a picture of a trace, and where the time of each rank went.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/guarded_file.h"
#include "cli/job.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "kvring/version.h"
#include "trace/picture.h"
#include "trace/read.h"
#include "trace/summary.h"

namespace kvring::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kDescription = R"(Draws what the ranks of a run did when, and adds up their time.

Examples:
  kvring attend --input qkv.safetensors --causal --ranks 4 --trace run.json
  kvring trace run.json -o run.svg
  kvring trace run.json --json
  kvring simulate --machine h100 --ranks 8 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 131072 --causal \
    --trace simulated.json

https://ui.perfetto.dev opens run.json as well.)";

struct TraceOptions {
  std::string input;
  std::optional<std::string> output, span;
  bool json = false;
};

OrderedJson summary_json(const Trace& trace, const TraceSummary& summary) {
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t r = 0; r < summary.ranks.size(); ++r) {
    const RankSummary& rank = summary.ranks[r];
    ranks.push_back({{"rank", r},
                     {"host", trace.ranks[r].host},
                     {"busy_s", rank.busy_s},
                     {"exposed_late_s", rank.exposed_late_s},
                     {"exposed_transfer_s", rank.exposed_transfer_s},
                     {"exposed_send_s", rank.exposed_send_s},
                     {"idle_s", rank.idle_s},
                     {"efficiency", rank.efficiency}});
  }
  return {{"schema_version", kSchemaVersion},
          {"version", version()},
          {"problem", trace.info.problem},
          {"ranks", trace.ranks.size()},
          {"layout", trace.info.layout},
          {"schedule", trace.info.schedule},
          {"transport", trace.info.transport},
          {"simulated", trace.info.simulated},
          {"wall_s", summary.wall_s},
          {"efficiency", summary.efficiency},
          {"per_rank", ranks}};
}

std::string summary_text(const TraceSummary& summary) {
  const TimeUnit unit = unit_for(summary.wall_s);
  std::string text = fmt::format("{:>5} {:>10} {:>10} {:>12} {:>10} {:>10} {:>7}\n", "rank", "busy", "late",
                                 "transfer", "send", "idle", "busy %");
  const auto time = [&](double seconds) { return seconds / unit.seconds; };
  for (std::size_t r = 0; r < summary.ranks.size(); ++r) {
    const RankSummary& rank = summary.ranks[r];
    text += fmt::format("{:>5} {:>10.3f} {:>10.3f} {:>12.3f} {:>10.3f} {:>10.3f} {:>7.1f}\n", r,
                        time(rank.busy_s), time(rank.exposed_late_s), time(rank.exposed_transfer_s),
                        time(rank.exposed_send_s), time(rank.idle_s), rank.efficiency * 100);
  }
  return text + fmt::format("\ntimes in {}: {:.3f} in all, {:.1f} % of it computing\n", unit.name,
                            time(summary.wall_s), summary.efficiency * 100);
}

void write_picture(const std::string& path, const Trace& trace, double span_s) {
  GuardedFile file(path);
  file->write(draw_trace(trace, span_s));
  file->commit();
}

int run_trace(const TraceOptions& options) {
  if (options.input.empty())
    throw InvalidArgument("no trace: give the file that attend or simulate --trace F.json wrote");
  check_output("--output", options.output);
  if (options.output && same_file(options.input, *options.output))
    throw InvalidArgument(
        fmt::format("the output {} is the trace itself; write to another file", *options.output));
  if (options.span && !options.output)
    throw InvalidArgument("--span goes with --output F.svg, which is missing");
  const double span_s = options.span ? parse_real("--span", *options.span) : 0;
  constexpr double kLongest = 1e8;
  if (!(span_s >= 0 && span_s <= kLongest))
    throw InvalidArgument(
        fmt::format("--span is {}; it must be seconds, 0 to {:.0f}", *options.span, kLongest));
  const Trace trace = read_trace(options.input);
  const TraceSummary summary = summarize(trace);
  if (options.output) write_picture(*options.output, trace, span_s);
  fmt::print(
      "{}",
      options.json
          ? summary_json(trace, summary).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n"
          : summary_text(summary));
  return kDone;
}

}  // namespace

Command add_trace(CLI::App& program) {
  CLI::App* app = program.add_subcommand("trace", kDescription);
  auto options = std::make_shared<TraceOptions>();
  app->add_option("trace", options->input, "File that attend or simulate --trace wrote")->type_name("F.json");
  app->add_option("-o,--output", options->output, "Gets the picture")->type_name("F.svg");
  app->add_option("--span", options->span, "Seconds that the picture covers at least, to compare two")
      ->type_name("S");
  app->add_flag("--json", options->json, "Print one JSON object")->disable_flag_override();
  return {app, [options] { return run_trace(*options); }, [options] { return options->json; }};
}

}  // namespace kvring::cli
