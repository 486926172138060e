// From seconds that ranks measured to the rates of a machine.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvring::cli {

// What one rank measured, in rounds; all ranks at the same time.
struct Measured {
  std::string host;
  double memory_bytes = 0;     // of the host
  double meanwhile_bytes = 0;  // that passed during the call `busy`
  // By name, a value per round. f32, bf16, f16, short, keys: the calls of measured_calls.h. busy: the long
  // call in f32 while bytes pass; beside: until these have passed. read: of a byte of memory. small, large: a
  // shift of kSmallBytes, kLargeBytes around the ring. Without busy and beside where only pointers pass,
  // without all of these in a ring of one.
  std::map<std::string, std::vector<double>> seconds;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measured, host, memory_bytes, meanwhile_bytes, seconds)

inline constexpr double kSmallBytes = 1 << 10, kLargeBytes = 4 << 20;

// A machine in the format of the catalogue, for ranks with so many threads each. Rates are those of the
// slowest rank. What others do on a machine only ever adds, so each is taken of its fastest round, where
// figures of different calls can be compared; then all that cores do is made slower by as much as the long
// call took longer in all rounds, on average, than in its fastest: a job of some time meets all of them.
nlohmann::ordered_json machine_profile(const std::vector<Measured>& ranks, int threads,
                                       const std::string& source);

}  // namespace kvring::cli
