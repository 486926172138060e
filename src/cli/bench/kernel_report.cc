#include "cli/bench/kernel_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kvring::cli {
namespace {

constexpr const char* kColumns = "{:<32} {:>7} {:>10} {:>8} {:>8} {:>7} {:>7} {:>8} {:>6}  {:<15} {}";

Json ceiling_json(const Ceiling& ceiling) { return {{"before", ceiling.before}, {"after", ceiling.after}}; }

std::string number(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

// A line of the table, whose last column is mostly empty.
std::string line(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string verdict(bool reached) { return reached ? "reached" : "missed"; }

}  // namespace

Json row_json(const KernelRow& row) {
  const Problem& p = row.problem;
  const bool decode = row.gbytes_per_s.has_value();
  return {{"case", case_name(row.what)},
          {"dtype", dtype_name(p.kv_dtype)},
          {"head_dim", p.head_dim},
          {"value_dim", p.value_dim},
          {"n", p.kv_len},
          {"queries", p.q_len},
          {"q_heads", p.q_heads},
          {"kv_heads", p.kv_heads},
          {"mask", mask_name(row.what)},
          {"threads", row.what.threads},
          {"accumulation", row.what.online ? "online" : "reproducible"},
          {"repeats", row.repeats},
          {"seconds", row.seconds},
          {"cpu_seconds", row.cpu_seconds},
          {"gflops", row.gflops},
          {"peak", row.peak_name},
          {"peak_gflops", ceiling_json(row.peak_gflops)},
          {"fraction_of_peak", row.fraction_of_peak()},
          {"fraction_of_amx_peak", row.amx_peak_gflops ? Json(row.gflops / *row.amx_peak_gflops) : Json()},
          {"gbytes_per_s", decode ? Json(*row.gbytes_per_s) : Json()},
          {"read_gbytes_per_s", decode ? ceiling_json(row.read_gbytes_per_s) : Json()},
          {"fraction_of_read", decode ? Json(row.fraction()) : Json()},
          {"best_fraction", row.best_fraction()},
          {"target", row.target ? Json(*row.target) : Json()},
          {"reached", row.target ? Json(row.fraction() >= *row.target) : Json()},
          {"marks", row.marks}};
}

Json ratio_json(const KernelRatio& r) {
  return {{"case", case_name(r.what)},
          {"against", case_name(r.against)},
          {"what", r.target.what},
          {"ratio", r.value},
          {r.target.at_most ? "at_most" : "at_least", r.target.limit},
          {"reached", r.reached()}};
}

std::string table_head() {
  return line(fmt::format(kColumns, "case", "threads", "seconds", "GFLOP/s", "of peak", "of AMX", "GB/s",
                          "of reads", "best", "target", ""));
}

std::string row_text(const KernelRow& row) {
  const bool decode = row.gbytes_per_s.has_value();
  return line(fmt::format(
      kColumns, case_name(row.what), row.what.threads, fmt::format("{:.4g}", row.seconds),
      number(row.gflops, 1), number(row.fraction_of_peak(), 3),
      row.amx_peak_gflops ? number(row.gflops / *row.amx_peak_gflops, 3) : "-",
      decode ? number(*row.gbytes_per_s, 1) : "-", decode ? number(row.fraction(), 3) : "-",
      number(row.best_fraction(), 3),
      row.target ? fmt::format("{:.2f} {}", *row.target, verdict(row.fraction() >= *row.target)) : "-",
      fmt::join(row.marks, ", ")));
}

std::string ratio_text(const KernelRatio& r) {
  return fmt::format("  against {}: {} {:.3f}, {} {:.3g} {}\n", case_name(r.against), r.target.what, r.value,
                     r.target.at_most ? "<=" : ">=", r.target.limit, verdict(r.reached()));
}

}  // namespace kvring::cli
