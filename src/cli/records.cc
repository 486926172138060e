#include "cli/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "kvring/error.h"
#include "trace/json_members.h"
#include "trace/trace.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

// A rank, or null where there may be none.
std::optional<int> rank_or_null(const Json& object, const char* key, int ranks) {
  if (member(object, key).is_null()) return std::nullopt;
  return static_cast<int>(integer(object, key, 0, ranks - 1));
}

RecordedOperation operation_from(const Json& json, int ranks) {
  const Operation::What what = operation_kind(json);
  const bool has_peer = track_of(what) != Track::kCompute;
  const Json& done = member(json, "done_s");
  if (!done.is_null() && !done.is_number())
    refuse(fmt::format("has \"done_s\" {}; it must be a number, or null", shown(done)));
  return {.what = operation_name(what),
          .cargo = cargo_name(kvring::cargo(json)),
          .block = static_cast<int>(integer(json, "block", 0, ranks - 1)),
          .call = static_cast<std::uint32_t>(integer(json, "call", 0, kMost32)),
          .lap = static_cast<std::uint32_t>(integer(json, "lap", 0, kMost32)),
          .step = static_cast<int>(integer(json, "step", 0, kMost32)),
          .peer = has_peer ? static_cast<int>(integer(json, "peer", 0, ranks - 1))
                           : rank_or_null(json, "peer", ranks).value_or(-1),
          .done = !done.is_null()};
}

std::vector<int> ranks_in(const Json& object, const char* key, int ranks) {
  std::vector<int> all;
  for (const Json& rank : list(object, key))
    all.push_back(static_cast<int>(integer({{key, rank}}, key, 0, ranks - 1)));
  return all;
}

Record record_from(const Json& json) {
  const Json& version = member(json, "schema_version");
  if (version != 1) refuse(fmt::format("schema_version is {}; this kvring reads 1", shown(version)));
  const int ranks = static_cast<int>(integer(json, "ranks", 1, kMostRanks));
  Record record{.rank = static_cast<int>(integer(json, "rank", 0, ranks - 1)),
                .ranks = ranks,
                .host = text(json, "host"),
                .reason = text(json, "reason"),
                .verdict = text(json, "verdict"),
                .culprit = rank_or_null(json, "culprit", ranks),
                .silent = ranks_in(json, "silent", ranks),
                .operations = {}};
  for (const Json& operation : list(json, "operations")) {
    try {
      record.operations.push_back(operation_from(operation, ranks));
    } catch (const InputFile& error) {
      refuse(fmt::format("operation {} {}", record.operations.size(), error.what()));
    }
  }
  return record;
}

auto place(const RecordedOperation& o) { return std::tuple(o.call, o.lap, o.step); }

// The earliest pending transfer of `record`, with that peer if one is named.
const RecordedOperation* first_pending(const Record& record, std::optional<int> peer = {}) {
  const RecordedOperation* first = nullptr;
  for (const RecordedOperation& o : record.operations) {
    if (o.done || o.peer < 0 || (peer && o.peer != *peer)) continue;
    if (first == nullptr || place(o) < place(*first)) first = &o;
  }
  return first;
}

const RecordedOperation* last_attended(const Record& record) {
  const auto last = std::find_if(record.operations.rbegin(), record.operations.rend(),
                                 [](const RecordedOperation& o) { return o.what == "attend"; });
  return last == record.operations.rend() ? nullptr : &*last;
}

// What speaks against one rank, the weightiest first.
struct Suspicion {
  bool gone = false;     // silent for all others, and without a record
  int blamed = 0;        // by how many records
  bool awaited = false;  // one rank waits to send to it, and another for what it sends
  bool no_record = false;

  auto weight() const { return std::tuple(gone, blamed, awaited, no_record); }
};

std::vector<Suspicion> suspicions(const std::vector<Record>& records) {
  const auto ranks = static_cast<std::size_t>(records[0].ranks);
  std::vector<Suspicion> all(ranks);
  std::vector<bool> sent_to(ranks), received_from(ranks);
  std::vector<std::size_t> unheard_by(ranks);  // how many records
  for (Suspicion& s : all) s.no_record = true;
  for (const Record& record : records) {
    all[static_cast<std::size_t>(record.rank)].no_record = false;
    if (record.culprit) ++all[static_cast<std::size_t>(*record.culprit)].blamed;
    for (const int silent : record.silent) ++unheard_by[static_cast<std::size_t>(silent)];
    for (const RecordedOperation& o : record.operations) {
      if (o.done || o.peer < 0) continue;
      (o.what == "send" ? sent_to : received_from)[static_cast<std::size_t>(o.peer)] = true;
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    all[r].gone = all[r].no_record && unheard_by[r] == records.size();
    all[r].awaited = sent_to[r] && received_from[r];
  }
  return all;
}

std::string reason_of(const Suspicion& s, int rank, const std::vector<Record>& records) {
  if (s.blamed > 0) {
    for (const Record& record : records)
      if (record.culprit == rank && record.rank != rank)
        return fmt::format("{} of {} records blame it: {}", s.blamed, records.size(), record.verdict);
    return "its own record says so: " + records[0].verdict;
  }
  if (s.gone) return "it answered no other rank, and left no record";
  if (s.awaited) return "one rank waits to send to it, and another for what it sends";
  return "it left no record";
}

// The step that a failure falls into: a block is sent in the step before that in which it is attended.
void find_step(Diagnosis& found, const std::vector<Record>& records) {
  for (const Record& record : records) {
    const RecordedOperation* pending = first_pending(record, found.culprit);
    if (record.rank == found.culprit || pending == nullptr) continue;
    if (!found.missing || place(*pending) < place(*found.missing)) found.missing = *pending;
  }
  if (found.missing) {
    found.step = std::max(0, found.missing->step - 1);
    return;
  }
  for (const Record& record : records) {
    const RecordedOperation* attended = last_attended(record);
    if (attended != nullptr) found.step = std::max(found.step.value_or(0), attended->step);
  }
}

}  // namespace

Record read_record(const std::string& path) {
  return read_json_file(path, "a record of kvring attend --record",
                        [](const Json& json) { return record_from(json); });
}

void check_records(const std::vector<Record>& records) {
  std::set<int> seen;
  for (const Record& record : records) {
    if (record.ranks != records[0].ranks)
      throw InputFile(fmt::format("the records are of rings of {} and of {} ranks; give those of one run",
                                  records[0].ranks, record.ranks));
    if (!seen.insert(record.rank).second)
      throw InputFile(fmt::format("two records are of rank {}; give one of each rank", record.rank));
  }
}

Diagnosis diagnose(const std::vector<Record>& records) {
  Diagnosis found;
  const std::vector<Suspicion> all = suspicions(records);
  for (int r = 0; r < static_cast<int>(all.size()); ++r)
    if (all[static_cast<std::size_t>(r)].no_record) found.without_record.push_back(r);
  const auto worst = std::ranges::max_element(all, {}, &Suspicion::weight);
  const auto weight = worst->weight();
  if (weight == Suspicion().weight() || std::ranges::count(all, weight, &Suspicion::weight) > 1) {
    found.reason = "nothing in the records speaks against one rank more than against the others";
    return found;
  }
  found.culprit = static_cast<int>(worst - all.begin());
  found.reason = reason_of(*worst, *found.culprit, records);
  find_step(found, records);
  return found;
}

std::string waiting_text(const Record& record) {
  const RecordedOperation* o = first_pending(record);
  if (o == nullptr) return {};
  return fmt::format("{} of {} {} for step {} {} rank {}", o->what, o->cargo, o->block, o->step,
                     o->what == "send" ? "to" : "from", o->peer);
}

std::string last_attended_text(const Record& record) {
  const RecordedOperation* o = last_attended(record);
  return o == nullptr ? "" : fmt::format("call {}, lap {}, step {}", o->call, o->lap, o->step);
}

}  // namespace kvring::cli
