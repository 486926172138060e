// kvring info: what this build can do, here.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/cores.h"
#include "cli/exit_code.h"
#include "cli/team.h"
#include "cli/values.h"
#include "kvring/version.h"
#include "problem/support.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDescription = R"(Version, instruction set, transports and machine.

Examples:
  kvring info
  kvring info --support
  kvring info --json)";

struct InfoOptions {
  bool support = false;
  bool json = false;
};

Json support_json() {
  Json rows = Json::array();
  for (const SupportRow& row : support_table())
    rows.push_back({{"schedule", row.schedule},
                    {"mask", row.mask},
                    {"dtypes", row.dtypes},
                    {"features", row.features},
                    {"instead", row.instead}});
  return rows;
}

std::string support_text() {
  std::string text = fmt::format("{:<11} {:<10} {:<14} {}\n", "schedule", "mask", "dtypes", "features");
  for (const SupportRow& row : support_table())
    text += row.dtypes.empty()
                ? fmt::format("{:<11} {:<10} no: {}\n", row.schedule, row.mask, row.instead)
                : fmt::format("{:<11} {:<10} {:<14} {}\n", row.schedule, row.mask,
                              fmt::format("{}", fmt::join(row.dtypes, " ")), fmt::join(row.features, " "));
  return text + "\nMasks, dtypes and features combine freely where each is listed. All else is refused.\n";
}

Json info_json() {
  const cpu_set_t cores = allowed_cores();
  const std::string mpi = mpi_library_version();
  Json transports = Json::array({Json{{"name", "inproc"}}});
  if (!mpi.empty()) transports.push_back({{"name", "mpi"}, {"library", mpi}});
  return {{"schema_version", kSchemaVersion},
          {"version", version()},
          {"isa", isa()},
          {"supported_isas", supported_isas()},
          {"transports", transports},
          {"cores", CPU_COUNT(&cores)},
          {"memory_bytes", ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE)},
          {"page_bytes", ::sysconf(_SC_PAGESIZE)}};
}

std::string info_text(const Json& info) {
  std::string transports;
  for (const Json& t : info["transports"]) {
    transports += (transports.empty() ? "" : ", ") + t["name"].get<std::string>();
    if (t.contains("library")) transports += " (" + t["library"].get<std::string>() + ")";
  }
  return fmt::format(
      "kvring      {}\nisa         {} (here: {})\ntransports  {}\ncores       {}\nmemory      {}\n"
      "page size   {}\n",
      info["version"].get<std::string>(), info["isa"].get<std::string>(),
      fmt::join(info["supported_isas"].get<std::vector<std::string>>(), " "), transports,
      info["cores"].get<int>(), bytes_text(info["memory_bytes"].get<double>()),
      bytes_text(info["page_bytes"].get<double>()));
}

int run_info(const InfoOptions& options) {
  Json info = info_json();
  if (options.json) {
    if (options.support) info["support"] = support_json();
    fmt::print("{}\n", info.dump(2));
  } else {
    fmt::print("{}", options.support ? support_text() : info_text(info));
  }
  return kDone;
}

}  // namespace

Command add_info(CLI::App& program) {
  CLI::App* app = program.add_subcommand("info", kDescription);
  auto options = std::make_shared<InfoOptions>();
  app->add_flag("--support", options->support, "What each schedule does with each mask, dtype and feature")
      ->disable_flag_override();
  app->add_flag("--json", options->json, "Print one JSON object")->disable_flag_override();
  return {app, [options] { return run_info(*options); }, [options] { return options->json; }};
}

}  // namespace kvring::cli
