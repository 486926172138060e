// What a run did, as JSON and as a table.
#pragma once

#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/rank_work.h"
#include "cli/team.h"

namespace kvring::cli {

// The keys that attend and verify share, up to bits_invariant.
Json run_json(const Job& job, const Team& team, const std::vector<Json>& reports);
// All of attend's.
Json attend_json(const Job& job, const Team& team, const std::vector<Json>& reports);

// `run` is what run_json or attend_json made.
std::string run_text(const Json& run);
std::string attend_text(const Json& run);

}  // namespace kvring::cli
