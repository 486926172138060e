// Processes that were started with different flags or files do not make one job; that must show before
// anything is written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/job.h"

namespace kvring::cli {

// What all processes of a job must have been given alike, beside the problem, on which the ring agrees.
struct Given {
  std::string name;   // "q", "--output"
  std::string value;  // is compared
  std::string shown;  // in the message
};
// The command, the input by its fingerprints, and the names of outputs.
std::vector<Given> given_files(const char* command, const JobOptions& options, const Job& job);
// A flag, as typed.
Given given_flag(const char* name, const std::optional<std::string>& value);
// Collective, before anything is written. `collect` is called where ranks are processes. Throws
// TransportError on all ranks when two were given different things.
void agree_on_job(Transport& transport, const std::function<std::vector<Given>()>& collect);

}  // namespace kvring::cli
