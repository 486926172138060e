// The support table: what each schedule does, in one place. Whatever it does not list is refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// One schedule with one mask.
struct SupportRow {
  std::string schedule;               // "ring", "all-gather", ...
  std::string mask;                   // "full", "causal", "window", "documents"
  std::vector<std::string> dtypes;    // that q, k and v, or out may have, each on its own
  std::vector<std::string> features;  // in any combination; see support_features()
  std::string instead;                // what to do for anything not listed, e.g. "use schedule ring"
};

// Every row, in a fixed order. Masks combine (a causal window inside documents) where each is listed.
std::vector<SupportRow> support_table();

// All features that a row may list: "sinks", "softcap", "gqa", "cross-attention", "value-dim" (other than
// head_dim), "online" (accumulation), "cut-tokens" (shards cut inside tiles), "custom-layout".
std::vector<std::string> support_features();

// What a call needs: all of its masks, dtypes and features.
struct SupportQuery {
  std::string schedule;
  std::vector<std::string> masks;
  std::vector<std::string> dtypes;
  std::vector<std::string> features;
};
SupportQuery support_query(const Problem& problem, const Layouts& layouts, ScheduleKind schedule);

// Throws Unsupported unless the table lists all of the query; names what is missing and what to do instead.
void require_listed(const std::vector<SupportRow>& table, const SupportQuery& query);

// The two above with support_table(). The problem must be valid.
void require_supported(const Problem& problem, const Layouts& layouts, ScheduleKind schedule);

// The schedule of that name. Throws InvalidArgument, listing the names, for any other text.
ScheduleKind parse_schedule(std::string_view name);

}  // namespace kvring
