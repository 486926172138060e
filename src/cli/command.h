// The subcommands. Each lives in a file of its own, adds its flags to the program and returns what to run.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
}

namespace kvring::cli {

struct Command {
  CLI::App* app = nullptr;
  // Returns the exit code; throws kvring::Error.
  std::function<int()> run;
  // Whether an error is wanted on stdout too, as JSON.
  std::function<bool()> json;
};

Command add_attend(CLI::App& program);
Command add_verify(CLI::App& program);
Command add_generate(CLI::App& program);
Command add_diagnose(CLI::App& program);
Command add_trace(CLI::App& program);
Command add_info(CLI::App& program);
Command add_plan(CLI::App& program);
Command add_simulate(CLI::App& program);
// `bench` and the commands below it, these first.
std::vector<Command> add_bench(CLI::App& program);
Command add_bench_kernel(CLI::App& bench);
Command add_bench_attend(CLI::App& bench);

// Bumped when a key of any --json output changes its meaning or goes.
inline constexpr int kSchemaVersion = 1;

}  // namespace kvring::cli
