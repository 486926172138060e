// The steps of all ranks, small and in the order in which a simulation reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/setting.h"

namespace kvring {

// A step as it is played; 16 bytes, since there are as many as the square of the ranks.
struct PlayedStep {
  float pairs = 0;  // to attend
  std::int32_t block = -1;
  std::int32_t receive_block = -1;  // -1: none
  bool sends = false;
};

// Ranks send to one neighbour and receive from another, the same in every step.
struct Script {
  // By step, then rank: ranks are at about the same step, so what is read together lies together.
  std::vector<PlayedStep> steps;
  std::vector<int> to, from;

  std::size_t index(int step, int rank) const {
    return static_cast<std::size_t>(step) * to.size() + static_cast<std::size_t>(rank);
  }
  const PlayedStep& at(int step, int rank) const { return steps[index(step, rank)]; }
};

// What schedule_steps() returns for every rank.
Script make_script(const Setting& setting);

}  // namespace kvring
