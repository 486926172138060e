// The bars of one rank over time, as paths: one of each kind, however many operations there are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/summary.h"
#include "trace/svg.h"
#include "trace/trace.h"

namespace kvring {

// What a bar shows.
enum class Shade : std::uint8_t {
  kEven,      // attending, in even steps
  kOdd,       // in odd ones
  kSkipped,   // the share of a block that no query sees
  kOther,     // packing and finishing
  kLate,      // waiting
  kTransfer,  // waiting
  kSend,      // waiting
  kIdle,      // not begun yet, or finished
  kMoving,    // a block on its way
};
inline constexpr std::size_t kShades = 9;

struct RowScale {
  Box bars;                  // computing and waiting
  Box transfers;             // below
  double span_ns = 1;        // over the width
  std::int64_t wall_ns = 0;  // of the run
};

// By shade, the data of an SVG path; empty: nothing of it. What is too narrow to be seen is gathered into
// columns, each filled from below by the shares of what happened in it, so that areas stay right.
std::array<std::string, kShades> row_paths(const RankTrace& rank, const RowScale& scale);

}  // namespace kvring
