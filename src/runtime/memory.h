// The memory of a ring that has its blocks mapped; the formulas are those that the planner prices
// (schedule/memory.h).
#pragma once

#include <vector>

#include "runtime/block.h"
#include "schedule/memory.h"

namespace kvring {

struct MemoryCase : MemoryInputs {
  MemoryCase(const Problem& p, const Layouts& l, const std::vector<BlockMap>& /*blocks*/, int thread_count,
             bool pointers)
      : MemoryInputs{p, l, thread_count, pointers} {}
};

}  // namespace kvring
