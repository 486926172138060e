#include "cli/error_report.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/launch.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

std::atomic<bool> json_wanted{false};

}  // namespace

bool prints_messages() { return detect_launch().rank == 0; }

void want_json_errors(bool wanted) noexcept { json_wanted = wanted; }

void print_json_error(ErrorCode error, const std::string& what, int code) {
  if (!prints_messages() || !json_wanted.exchange(false)) return;
  const nlohmann::ordered_json object = {{"schema_version", kSchemaVersion},
                                         {"version", version()},
                                         {"error", error_code_name(error)},
                                         {"message", what},
                                         {"exit_code", code}};
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);  // main() looks whether that worked
}

}  // namespace kvring::cli
