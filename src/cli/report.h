// What a run did, as JSON and as a table.
#pragma once

#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/rank_work.h"
#include "cli/team.h"
#include "trace/trace.h"

namespace kvring::cli {

// What is run.
struct Setup {
  const Problem& problem;
  const Layouts& layouts;
  const RingOptions& ring;
};
// The keys that all runs share: schema_version to threads.
Json setup_json(const Setup& setup, const Team& team);
// An entry of per_rank.
Json rank_json(const RankReport& report);
// The keys that attend and verify share: those, bits_invariant and wall_s.
Json run_json(const Job& job, const Team& team, const std::vector<Json>& reports);
// All of attend's.
Json attend_json(const Job& job, const Team& team, const std::vector<Json>& reports);

// For a trace: version and problem. The rest is to be filled in.
TraceInfo trace_info(const Problem& problem);
// Of a job all.
TraceInfo trace_info(const Job& job, const Team& team);

// Two lines on what is run; `run` begins as setup_json.
std::string setup_text(const Json& run);
// A table of per_rank.
std::string ranks_text(const Json& per_rank);
// `run` is what run_json or attend_json made.
std::string run_text(const Json& run);
std::string attend_text(const Json& run);

}  // namespace kvring::cli
