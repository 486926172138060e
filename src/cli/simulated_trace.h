// A simulated run as a trace, like that of a real one.
#pragma once

#include <string>
#include <vector>

#include "cli/guarded_file.h"
#include "planner/simulate.h"
#include "trace/trace.h"

namespace kvring::cli {

class SimulatedTrace {
 public:
  // Makes the file, so that a path that cannot work is refused before the simulation. Throws as TextFile
  // does.
  SimulatedTrace(const std::string& path, int ranks);

  // Of options.tell.
  void add(int rank, const Operation& operation) {
    ranks_[static_cast<std::size_t>(rank)].operations.push_back(operation);
  }
  // Once the simulation is over. Throws InputFile.
  void write(ScheduleKind schedule, const Setting& setting, const Simulation& simulation);

 private:
  GuardedFile file_;
  std::vector<RankTrace> ranks_;
};

}  // namespace kvring::cli
