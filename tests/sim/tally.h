// What became of many seeds, as a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/sim/trial.h"

namespace kvring::sim {

// "flip of a header", "crash".
std::string name_of(const Fault& fault);

class Tally {
 public:
  void add(const Trial& trial);

  std::uint64_t wrong() const noexcept { return wrong_; }
  std::uint64_t met(const Fault& like) const;  // runs in which one such fault met something
  std::string table() const;

 private:
  using Counts = std::map<std::string, std::uint64_t>;  // by what caught it; "" for runs that healed
  std::uint64_t runs_ = 0, wrong_ = 0, no_fault_ = 0, several_ = 0, events_ = 0;
  std::uint64_t digest_ = 0;  // of all runs, in any order
  double virtual_s_ = 0;
  Counts ends_;
  std::map<std::string, Counts> by_fault_;  // of runs in which one fault met something
};

}  // namespace kvring::sim
