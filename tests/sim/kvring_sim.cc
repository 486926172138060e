// Runs seeds of the simulation and prints what became of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "tests/sim/tally.h"
#include "tests/sim/trial.h"

int main(int argc, char** argv) {
  using namespace kvring::sim;
  CLI::App app("Plays rings over a simulated network with faults; every seed must end right.");
  std::uint64_t first = 0, seeds = 1000;
  bool verbose = false;
  app.add_option("--first", first, "first seed")->capture_default_str();
  app.add_option("--seeds", seeds, "how many")->capture_default_str();
  app.add_flag("--verbose", verbose, "what every seed stands for, and how it ended");
  CLI11_PARSE(app, argc, argv);

  const auto began = std::chrono::steady_clock::now();
  Tally tally;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const Trial trial = try_seed(seed);
    tally.add(trial);
    if (verbose) fmt::print("{}", describe(trial));
    if (trial.wrong.empty()) continue;
    if (!verbose) fmt::print("{}", describe(trial));
    fmt::print("again: {} --first {} --seeds 1 --verbose\n", argv[0], seed);
    if (tally.wrong() >= 1000) break;
  }
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("{}{:.1f} s\n", tally.table(), wall);
  return tally.wrong() == 0 ? 0 : 1;
}
