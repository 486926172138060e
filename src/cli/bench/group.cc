// kvring bench: the commands that measure.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/message.h"

namespace kvring::cli {

std::vector<Command> add_bench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", R"(Measures the kernel, or a whole job, on this machine.

Examples:
  kvring bench kernel --case f32-full-d64-n8192
  kvring bench attend --shape 1,8192,8,128 --causal --ranks 2)");
  bench->require_subcommand(0, 1);
  const Command group = {bench,
                         [bench] {
                           if (detect_launch().rank == 0) message("{}", bench->help("kvring"));
                           return kUsage;
                         },
                         [] { return false; }};
  return {add_bench_kernel(*bench), add_bench_attend(*bench), group};
}

}  // namespace kvring::cli
