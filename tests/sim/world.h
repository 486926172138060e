// What a seed stands for: the ring, its problem, its network, and the faults.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"
#include "tests/sim/fault.h"
#include "tests/sim/network.h"

namespace kvring::sim {

struct World {
  std::uint64_t seed = 0;
  int ranks = 2;
  int calls = 1;  // attend() this many times
  Problem problem;
  Layouts layouts;
  std::int64_t heads_per_lap = 1;
  double deadline_s = 30;
  std::size_t largest_piece = 0;  // bytes
  NetworkOptions network;
  std::vector<Duration> pace;  // by rank: at most that long for a piece of computation
};
World make_world(std::uint64_t seed);
std::string describe(const World& world);

// What a run without faults was: faults are placed within it.
struct Rehearsal {
  Duration length{};
  std::array<std::uint64_t, kClasses> sent{};  // messages by class
};
// One fault most of the time, now and then none or several.
std::vector<Fault> draw_faults(const World& world, const Rehearsal& rehearsal);

// After the last progress and the last fault that ended, every rank's end comes within this time: what the
// deadline is, and how late news of progress may be.
Duration longest_end(const World& world);

}  // namespace kvring::sim
