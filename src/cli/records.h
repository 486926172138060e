// The records that the ranks of a failed ring left (Ring::record), read together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvring::cli {

struct RecordedOperation {
  std::string what;             // "send", "receive", "attend"
  std::string cargo = "block";  // "block", "queries", "partials", "rows"
  int block = 0;                // its owner
  std::uint32_t call = 0, lap = 0;
  int step = 0;
  int peer = -1;
  bool done = false;
};

struct Record {
  int rank = 0;
  int ranks = 1;
  std::string host, reason, verdict;
  std::optional<int> culprit;
  std::vector<int> silent;                    // the ranks that did not answer this one
  std::vector<RecordedOperation> operations;  // oldest first
};

// Throws InputFile, naming the file, unless it holds a record.
Record read_record(const std::string& path);
// Throws InputFile unless these are records of different ranks of one ring.
void check_records(const std::vector<Record>& records);

struct Diagnosis {
  std::optional<int> culprit;
  std::optional<RecordedOperation> missing;  // what of the culprit's was waited for first, by whom and when
  std::optional<int> step;                   // that the culprit was in, or the others were
  std::string reason;
  std::vector<int> without_record;
};

// The rank that answered none of them and left no record. Where there is none, or several: the one that most
// records blame. Where they do not agree, or blame nobody: the one where pending sends of one neighbour and
// pending receives of another meet; then one that left no record.
Diagnosis diagnose(const std::vector<Record>& records);

// "a block of rank 1 for step 2 from rank 2", the first thing that the rank still waited for; empty: nothing.
std::string waiting_text(const Record& record);
// "lap 0, step 2"; empty: none.
std::string last_attended_text(const Record& record);

}  // namespace kvring::cli
