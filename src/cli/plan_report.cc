#include "cli/plan_report.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "kvring/version.h"
#include "planner/text.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

Json price_json(const Price& price) {
  const bool possible = price.not_possible.empty();
  const auto number = [&](auto value) { return possible ? Json(value) : Json(nullptr); };
  Json memory = Json::object();
  for (const auto& [name, bytes] : price.memory) memory[name] = bytes;
  return {{"name", price.name},
          {"compute_s_per_step", number(price.compute_s_per_step)},
          {"transfer_s_per_step", number(price.transfer_s_per_step)},
          {"exposed_s", number(price.exposed_s)},
          {"total_s", number(price.total_s)},
          {"bytes_per_hop", number(price.bytes_per_hop)},
          {"memory_bytes", memory},
          {"fits", price.fits},
          {"runs_here", price.runs_here()},
          {"note", possible ? price.not_here : price.not_possible}};
}

Json hop_json(const Hop& hop) {
  if (hop.seconds == 0) return nullptr;
  return {{"from", hop.from}, {"to", hop.to}, {"between_nodes", hop.between_nodes}, {"seconds", hop.seconds}};
}

// "ring", "tree *": marks what this build does not run.
std::string marked_name(const Price& price) { return price.name + (price.not_here.empty() ? "" : " *"); }

std::string price_line(const Price& p) {
  if (!p.not_possible.empty()) return fmt::format("{:<18} no: {}\n", p.name, p.not_possible);
  return fmt::format("{:<18} {:>11} {:>11} {:>11} {:>11} {:>10} {:>10}  {}\n", marked_name(p),
                     seconds_text(p.compute_s_per_step), seconds_text(p.transfer_s_per_step),
                     seconds_text(p.exposed_s), seconds_text(p.total_s),
                     decimal_bytes_text(static_cast<double>(p.bytes_per_hop)),
                     decimal_bytes_text(static_cast<double>(ledger_total(p.memory))), p.fits ? "yes" : "no");
}

std::string memory_text(const Price& ring) {
  std::string text = "memory of the fullest rank of the ring:";
  const char* separator = " ";
  for (const auto& [name, bytes] : ring.memory) {
    text += fmt::format("{}{} {}", separator, name, decimal_bytes_text(static_cast<double>(bytes)));
    separator = ", ";
  }
  return text + "\n";
}

std::string hops_text(const Plan& plan) {
  std::string text;
  const double beside_s = plan.prices.front().transfer_s_per_step;
  if (plan.slowest_hop.seconds > 0)
    text +=
        fmt::format("slowest hop of the ring: rank {} to {}, {}, {}{}\n", plan.slowest_hop.from,
                    plan.slowest_hop.to, plan.slowest_hop.between_nodes ? "between nodes" : "within a node",
                    seconds_text(plan.slowest_hop.seconds),
                    beside_s > 1.001 * plan.slowest_hop.seconds
                        ? fmt::format(", beside computing {}", seconds_text(beside_s))
                        : "");
  if (plan.break_even_slice_tokens > 0)
    text += fmt::format("tokens of the longest slice: {}; from {} on a step hides a hop\n",
                        count_text(plan.slice_tokens), count_text(plan.break_even_slice_tokens));
  return text;
}

std::string larger_text(const Plan& plan) {
  if (plan.larger.empty()) return "";
  std::string text = "larger rings:";
  for (const Larger& larger : plan.larger)
    text +=
        fmt::format("{} {} ranks {} ({} exposed)", &larger == &plan.larger.front() ? "" : ";", larger.ranks,
                    seconds_text(larger.total_s), percent_text(larger.exposed_s / larger.total_s));
  return text + "\n";
}

std::string mesh_text(const Mesh& mesh) {
  return fmt::format("tp={},pp={},dp={}", mesh.tensor, mesh.pipeline, mesh.data);
}

std::string head_text(const PlanQuery& query, const Plan& plan) {
  const Problem& p = query.workload.problem;
  return fmt::format(
      "{} queries x {} keys, batch {}, {} query heads on {} kv heads, dim {} / {}, {}{}, {} layer{}, {} "
      "layout\n"
      "machine {}, ring of {}{}, mesh {}\n\n",
      count_text(p.q_len), count_text(p.kv_len), p.batch, p.q_heads, p.kv_heads, p.head_dim, p.value_dim,
      dtype_name(p.kv_dtype), p.causal ? ", causal" : "", query.workload.layers,
      query.workload.layers == 1 ? "" : "s", layout_name(query.workload.layout.kind), query.machine.name,
      plan.placement.ranks, plan.ranks_found ? " (the fewest that fit)" : "", mesh_text(plan.placement.mesh));
}

}  // namespace

Json plan_json(const PlanQuery& query, const Plan& plan) {
  const Mesh& mesh = plan.placement.mesh;
  Json schedules = Json::array(), larger = Json::array();
  for (const Price& price : plan.prices) schedules.push_back(price_json(price));
  for (const Larger& l : plan.larger)
    larger.push_back(
        {{"ranks", l.ranks}, {"total_s", l.total_s}, {"exposed_s", l.exposed_s}, {"fits", l.fits}});
  const Choice& choice = plan.choice;
  return {{"schema_version", kSchemaVersion},
          {"version", version()},
          {"machine", query.machine.name},
          {"ranks", plan.placement.ranks},
          {"mesh", {{"tp", mesh.tensor}, {"pp", mesh.pipeline}, {"dp", mesh.data}}},
          {"schedules", schedules},
          {"slice_tokens", plan.slice_tokens},
          {"break_even_slice_tokens",
           plan.break_even_slice_tokens > 0 ? Json(plan.break_even_slice_tokens) : Json(nullptr)},
          {"max_context_tokens", plan.max_context_tokens},
          {"slowest_hop", hop_json(plan.slowest_hop)},
          {"larger_rings", larger},
          {"choice", choice.name},
          {"reason", choice.reason},
          {"run", choice.run_ranks ? Json{{"schedule", choice.run_schedule}, {"ranks", *choice.run_ranks}}
                                   : Json(nullptr)}};
}

std::string plan_text(const PlanQuery& query, const Plan& plan) {
  std::string text = head_text(query, plan);
  text += fmt::format("{:<18} {:>11} {:>11} {:>11} {:>11} {:>10} {:>10}  {}\n", "schedule", "compute",
                      "transfer", "exposed", "total", "per hop", "memory", "fits");
  text += fmt::format("{:<18} {:>11} {:>11}\n", "", "per step", "per step");
  bool marked = false;
  for (const Price& price : plan.prices) {
    text += price_line(price);
    marked |= price.not_possible.empty() && !price.not_here.empty();
  }
  if (marked) text += "* priced, but not run by this build\n";
  text += "\n" + memory_text(plan.prices.front()) + hops_text(plan);
  text +=
      fmt::format("longest context that the ring holds: {} tokens\n", count_text(plan.max_context_tokens));
  return text + larger_text(plan) + "\n" + plan.choice.reason + "\n";
}

}  // namespace kvring::cli
