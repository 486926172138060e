// What must be true of every run.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/simulation.h"

namespace kvring::sim {

// Everything that is wrong with the run, in words; empty when nothing is.
std::vector<std::string> judge(const World& world, const std::vector<Fault>& faults, const Run& run);

// Of the rank that ended with an error first; null when all ranks returned.
const RankEnd* first_error(const Run& run);

// What ended a run: the first error of any rank, by the guard that threw it; "" when all ranks returned.
std::string caught_by(const Run& run);

}  // namespace kvring::sim
