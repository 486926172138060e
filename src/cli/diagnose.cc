// kvring diagnose: which rank a failed ring failed on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/records.h"
#include "kvring/error.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kDescription = R"(Reads the records of a failed run's ranks and names the culprit.

Examples:
  mpirun -n 8 kvring attend --input qkv.safetensors --causal --record records
  kvring diagnose records/rank-*.json

Ranks that were killed leave no record; those of the others are enough.)";

struct DiagnoseOptions {
  std::vector<std::string> files;
  bool json = false;
};

OrderedJson diagnosis_json(const Diagnosis& found) {
  const auto or_null = [](const std::optional<int>& value) {
    return value ? OrderedJson(*value) : OrderedJson();
  };
  return {
      {"schema_version", kSchemaVersion}, {"version", version()},   {"culprit", or_null(found.culprit)},
      {"step", or_null(found.step)},      {"reason", found.reason}, {"without_record", found.without_record}};
}

std::string diagnosis_text(const std::vector<Record>& records, const Diagnosis& found) {
  std::string text = fmt::format("{:>5}  {:<16} {:<24} {}\n", "rank", "host", "last attended", "waits for");
  for (const Record& record : records)
    text += fmt::format("{:>5}  {:<16} {:<24} {}\n", record.rank, record.host, last_attended_text(record),
                        waiting_text(record));
  for (const int rank : found.without_record) text += fmt::format("{:>5}  no record\n", rank);
  text += '\n';
  if (!found.culprit) return text + "no culprit: " + found.reason + "\n";
  text += fmt::format("rank {} is to blame", *found.culprit);
  if (found.step) text += fmt::format(", in step {}", *found.step);
  return text + ": " + found.reason + "\n";
}

int run_diagnose(const DiagnoseOptions& options) {
  if (options.files.empty())
    throw InvalidArgument("no records: give the files that kvring attend --record DIR left, DIR/rank-*.json");
  std::vector<Record> records;
  for (const std::string& file : options.files) records.push_back(read_record(file));
  check_records(records);
  std::ranges::sort(records, {}, &Record::rank);
  const Diagnosis found = diagnose(records);
  fmt::print("{}", options.json ? diagnosis_json(found).dump(2) + "\n" : diagnosis_text(records, found));
  return kDone;
}

}  // namespace

Command add_diagnose(CLI::App& program) {
  CLI::App* app = program.add_subcommand("diagnose", kDescription);
  auto options = std::make_shared<DiagnoseOptions>();
  app->add_option("records", options->files, "Files, one of each rank")->type_name("F.json..");
  app->add_flag("--json", options->json, "Print one JSON object")->disable_flag_override();
  return {app, [options] { return run_diagnose(*options); }, [options] { return options->json; }};
}

}  // namespace kvring::cli
