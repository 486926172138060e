// A seed, from beginning to end.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/simulation.h"

namespace kvring::sim {

struct Trial {
  World world;
  std::vector<Fault> faults;
  Run run;
  std::vector<std::string> wrong;
};
// Runs the world without faults first: that must be right too, and says where faults can go.
Trial try_seed(std::uint64_t seed);
// The same with given faults.
Trial try_faults(std::uint64_t seed, const std::vector<Fault>& faults);

// All there is to know about it, over several lines.
std::string describe(const Trial& trial);

}  // namespace kvring::sim
