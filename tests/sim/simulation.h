// One run of a world: the real ring, executor and protocol of every rank over the simulated network.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvring/error.h"
#include "tests/matrix/matrix.h"
#include "tests/sim/world.h"

namespace kvring::sim {

// What became of a rank.
struct RankEnd {
  bool crashed = false;
  int right = 0;                  // calls that gave the right bits
  int wrong = 0;                  // calls that returned others
  bool returned = false;          // all calls, and the barrier after them
  std::optional<ErrorCode> code;  // of the error it ended with, when that is one of kvring's
  std::string error;
  Verdict verdict;
  Time came = kNever;   // when it returned, or the error was thrown
  Time ended = kNever;  // when ring and transport were gone
};

struct Run {
  std::vector<RankEnd> ends;  // by rank
  std::vector<bool> fired;    // by fault: it met something
  Rehearsal measured;
  Time last_progress = kStart;  // or the end of a fault that ended
  bool hung = false;
  std::uint64_t digest = 0;  // of all that happened
  std::uint64_t events = 0;
};

// The inputs of each call, and the bits they must give: those of one rank.
struct Expected {
  std::vector<test::Inputs> inputs;
  std::vector<test::Result> results;
};
Expected expect(const World& world);

Run simulate(const World& world, const Expected& expected, const std::vector<Fault>& faults);

}  // namespace kvring::sim
