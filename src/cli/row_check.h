// Sampled rows of a result against float64 attention, one head of K and V in memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/job.h"

namespace kvring::cli {

struct RowId {
  std::int64_t b, s, h;
  friend bool operator==(const RowId&, const RowId&) = default;
  friend bool operator<(const RowId& x, const RowId& y) {
    return std::tie(x.b, x.s, x.h) < std::tie(y.b, y.s, y.h);
  }
};

// Which rows to check, ascending. `count` of them, the first and the last always; all where there are not
// more, or, without a count, where all cost next to nothing (else 64). The same for the same seed anywhere.
std::vector<RowId> sample_rows(const Problem& problem, std::optional<std::int64_t> count, std::uint64_t seed);

struct ComputedRow {
  RowId id;
  std::vector<float> out;  // value_dim
  float lse;
};

// The rows of the sample that a rank owns, packed to travel, and back. `out` and `lse` are the rank's.
std::string pack_rows(const std::vector<RowId>& sample, const Shard& shard, const ConstTensorView& out,
                      const LseView& lse);
std::vector<ComputedRow> unpack_rows(const std::vector<std::string>& by_rank, std::int64_t value_dim);

// Errors of one kind of value. What no bound allows (a NaN where a number is expected) is an infinite error.
struct ErrorStats {
  double max_abs = 0;
  double max_rel = 0;
  // Of the value that comes nearest to its bound, or is furthest past it.
  double over_bound = 0;  // error / bound
  double bound = 0;
  RowId worst{};

  void add(double got, double expected, double scale, double allowed, const RowId& row);
};

struct RowCheck {
  std::int64_t rows = 0;
  // Rows with a value that has no finite bound, because float32 or the output dtype may
  // overflow: not checked there.
  std::int64_t unbounded_rows = 0;
  ErrorStats out;  // relative to sum p |v|, the scale of rounding errors
  ErrorStats lse;  // relative to max(1, |lse|)
  bool passed = true;
};

// Reads q, k and v again from the job's files. `progress` is called with the share done, on this thread.
RowCheck check_rows(const Job& job, std::vector<ComputedRow> rows,
                    const std::function<void(double)>& progress);

}  // namespace kvring::cli
