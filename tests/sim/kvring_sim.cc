// Runs seeds of the simulation and prints what became of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/sim/tally.h"
#include "tests/sim/trial.h"

int main(int argc, char** argv) {
  using kvring::sim::Tally;
  using kvring::sim::Trial;
  CLI::App app("Plays rings over a simulated network with faults; every seed must end right.");
  std::uint64_t first = 0, seeds = 1000;
  int jobs = 1;
  bool verbose = false;
  app.add_option("--first", first, "first seed")->capture_default_str();
  app.add_option("--seeds", seeds, "how many")->capture_default_str();
  app.add_option("--jobs", jobs, "seeds at a time")->capture_default_str();
  app.add_flag("--verbose", verbose, "what every seed stands for, and how it ended");
  CLI11_PARSE(app, argc, argv);

  const auto began = std::chrono::steady_clock::now();
  std::mutex mutex;
  Tally tally;
  std::atomic<std::uint64_t> next = first;
  const auto work = [&] {
    for (std::uint64_t seed = next++; seed < first + seeds; seed = next++) {
      const Trial trial = kvring::sim::try_seed(seed);
      const std::lock_guard lock(mutex);
      tally.add(trial);
      if (verbose || !trial.wrong.empty()) fmt::print("{}", describe(trial));
      if (!trial.wrong.empty()) fmt::print("again: {} --first {} --seeds 1 --verbose\n", argv[0], seed);
    }
  };
  std::vector<std::thread> workers;
  for (int job = 0; job < jobs; ++job) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print("{}{:.1f} s\n", tally.table(), wall);
  return tally.wrong() == 0 ? 0 : 1;
}
