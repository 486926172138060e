// The operations of all ranks, brought to rank 0 and onto one clock.
#pragma once

#include <vector>

#include "kvring/operation.h"
#include "kvring/transport.h"
#include "trace/align.h"
#include "trace/trace.h"

namespace kvring {

struct MyTrace {
  std::vector<BarrierTimes> barriers;  // from before the run
  Operation::Tiles tiles;
  std::vector<Operation> operations;  // on this rank's clock
};
// All ranks must call it. On rank 0 the traces by rank, from the first operation of any of them on; empty on
// the others. What was still under way is over with the last operation of its rank.
std::vector<RankTrace> gather_traces(Transport& transport, const MyTrace& mine);

}  // namespace kvring
