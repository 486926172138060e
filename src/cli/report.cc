#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/digest.h"
#include "cli/values.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

// The canonical fields of the problem, numbers as numbers and lists as lists.
Json problem_json(const Problem& problem) {
  Json json = Json::object();
  for (const ProblemField& field : problem_fields(problem)) {
    const bool is_list = field.name.starts_with("cu_seqlens");
    const std::string text = is_list ? "[" + field.value + "]" : field.value;
    const Json value = Json::parse(text, nullptr, false);
    json[field.name] = value.is_discarded() ? Json(field.value) : value;
  }
  return json;
}

std::uint64_t sum_of(const std::vector<Json>& reports, const char* key) {
  std::uint64_t sum = 0;
  for (const Json& report : reports) sum += report[key].get<std::uint64_t>();
  return sum;
}

double work_of(const Json& rank) {
  return rank["tiles_full"].get<double>() + rank["tiles_partial"].get<double>();
}

std::string mask_text(const Json& p) {
  std::string text = p["causal"].get<bool>() ? ", causal" : "";
  if (p["window_left"] != -1 || p["window_right"] != -1)
    text += fmt::format(", window {},{}", p["window_left"].get<std::int64_t>(),
                        p["window_right"].get<std::int64_t>());
  if (!p["cu_seqlens_q"].empty()) text += fmt::format(", {} documents", p["cu_seqlens_q"].size() - 1);
  return text;
}

std::string problem_text(const Json& p) {
  const auto number = [&](const char* key) { return p[key].get<std::int64_t>(); };
  return fmt::format("{} queries x {} keys, batch {}, {} query heads on {} kv heads, dim {} / {}, {} -> {}{}",
                     number("q_len"), number("kv_len"), number("batch"), number("q_heads"),
                     number("kv_heads"), number("head_dim"), number("value_dim"),
                     p["kv_dtype"].get<std::string>(), p["out_dtype"].get<std::string>(), mask_text(p));
}

}  // namespace

Json rank_json(const RankReport& r) {
  Json ledger = Json::object();
  for (const auto& [name, bytes] : r.ledger_bytes) ledger[name] = bytes;
  return {{"rank", r.rank},
          {"tokens", r.tokens},
          {"compute_s", r.compute_s},
          {"transfer_s", r.transfer_s},
          {"exposed_wait_s", r.exposed_wait_s},
          {"exposed_late_s", r.exposed_late_s},
          {"exposed_transfer_s", r.exposed_transfer_s},
          {"exposed_send_s", r.exposed_send_s},
          {"bytes_sent", r.bytes_sent},
          {"hops", r.hops},
          {"tiles_full", r.tiles_full},
          {"tiles_partial", r.tiles_partial},
          {"tiles_skipped", r.tiles_skipped},
          {"ledger_bytes", ledger},
          {"peak_bytes", r.peak_bytes}};
}

Json setup_json(const Setup& setup, const Team& team) {
  return {{"schema_version", kSchemaVersion},
          {"version", version()},
          {"isa", isa()},
          {"problem", problem_json(setup.problem)},
          {"ranks", team.ranks()},
          {"layout", layout_name(setup.layouts.q.spec.kind)},
          {"schedule", schedule_name(setup.ring.schedule)},
          {"transport", team.transport()},
          {"threads", setup.ring.threads}};
}

Json run_json(const Job& job, const Team& team, const std::vector<Json>& reports) {
  double wall_s = 0;
  for (const Json& report : reports) wall_s = std::max(wall_s, report["wall_s"].get<double>());
  Json json = setup_json({job.problem, job.layouts, job.ring}, team);
  json["bits_invariant"] = reports[0]["bits_invariant"];
  json["wall_s"] = wall_s;
  return json;
}

Json attend_json(const Job& job, const Team& team, const std::vector<Json>& reports) {
  const Problem& p = job.problem;
  Json json = run_json(job, team, reports);
  json["output_digest"] =
      digest_text(sum_of(reports, "out_digest"), p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim});
  json["lse_digest"] = digest_text(sum_of(reports, "lse_digest"), DType::kF32, {p.batch, p.q_heads, p.q_len});
  json["per_rank"] = Json::array();
  for (const Json& report : reports) json["per_rank"].push_back(report["report"]);
  return json;
}

TraceInfo trace_info(const Problem& problem) {
  TraceInfo info;
  info.version = version();
  info.problem = problem_json(problem);
  info.problem_text = problem_text(info.problem);
  return info;
}

TraceInfo trace_info(const Job& job, const Team& team) {
  TraceInfo info = trace_info(job.problem);
  info.layout = layout_name(job.layouts.q.spec.kind);
  info.schedule = schedule_name(job.ring.schedule);
  info.transport = team.transport();
  info.threads = job.ring.threads;
  return info;
}

std::string setup_text(const Json& run) {
  return fmt::format("{}\n{} ranks, {} layout, {} schedule, {} transport, {} threads per rank, {}\n",
                     problem_text(run["problem"]), run["ranks"].get<int>(), run["layout"].get<std::string>(),
                     run["schedule"].get<std::string>(), run["transport"].get<std::string>(),
                     run["threads"].get<int>(), run["isa"].get<std::string>());
}

std::string run_text(const Json& run) {
  return setup_text(run) + fmt::format("attention took {:.3f} s\n", run["wall_s"].get<double>());
}

std::string ranks_text(const Json& per_rank) {
  double all_work = 0;
  for (const Json& rank : per_rank) all_work += work_of(rank);
  std::string text = fmt::format("\n{:>5} {:>10} {:>7} {:>11} {:>9} {:>6} {:>11} {:>12}\n", "rank", "tokens",
                                 "work %", "compute s", "wait s", "hops", "sent", "peak memory");
  for (const Json& rank : per_rank)
    text +=
        fmt::format("{:>5} {:>10} {:>7.1f} {:>11.3f} {:>9.3f} {:>6} {:>11} {:>12}\n", rank["rank"].get<int>(),
                    rank["tokens"].get<std::int64_t>(), all_work > 0 ? work_of(rank) / all_work * 100 : 0.0,
                    rank["compute_s"].get<double>(), rank["exposed_wait_s"].get<double>(),
                    rank["hops"].get<std::int64_t>(), bytes_text(rank["bytes_sent"].get<double>()),
                    bytes_text(rank["peak_bytes"].get<double>()));
  return text;
}

std::string attend_text(const Json& run) {
  std::string text = run_text(run) + ranks_text(run["per_rank"]);
  text += fmt::format("\nout digest {}   lse digest {}{}\n", run["output_digest"].get<std::string>(),
                      run["lse_digest"].get<std::string>(),
                      run["bits_invariant"].get<bool>()
                          ? ""
                          : "\n(this run is exact, but its bits may differ at other ring sizes)");
  return text;
}

}  // namespace kvring::cli
