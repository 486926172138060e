// kvring: the command-line tool. Parses, runs one subcommand, and turns errors into messages and exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/error_report.h"
#include "cli/exit_code.h"
#include "cli/message.h"
#include "cli/suggest.h"
#include "cli/team.h"
#include "kvring/error.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

constexpr const char* kDescription = R"(Exact attention over a sequence that no single device can hold.

Examples:
  kvring generate --shape 1,8192,8,128 -o qkv.safetensors
  kvring attend --input qkv.safetensors --causal --ranks 4 --output result.safetensors
  kvring verify --input qkv.safetensors --causal --ranks 4)";

constexpr const char* kFooter =
    R"(Exit codes: 0 done, 1 internal error, 2 usage, 3 input file, 4 transport or timeout,
5 verification failed, 6 would not fit the memory given.)";

// How this process failed, if it did.
Outcome ending;

int report(const Error& error) {
  const int code = exit_code(error.code());
  ending = {true, error.code(), error.what()};
  if (!prints_messages()) return code;
  message("kvring: {} [{}]\n", error.what(), error_code_name(error.code()));
  print_json_error(error.code(), error.what(), code);
  return code;
}

// "kvring bench kernel".
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

int usage_error(const std::string& what, const CLI::App& app) {
  ending = {true, ErrorCode::kInvalidArgument, fmt::format("{} (see {} --help)", what, full_name(app))};
  if (!prints_messages()) return kUsage;
  message("kvring: {}\n", ending.message);
  print_json_error(ErrorCode::kInvalidArgument, what, kUsage);
  return kUsage;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

int unknown_argument(const CLI::App& app, const std::string& argument) {
  const std::string word = argument.substr(0, argument.find('='));
  if (word.starts_with('-'))
    return usage_error(
        fmt::format("{} has no flag {}{}", app.get_name(), word, did_you_mean(word, flags_of(app))), app);
  return usage_error(fmt::format("{} takes no argument '{}'; values follow flags", app.get_name(), argument),
                     app);
}

// Before the command, after "--", or a second command.
int misplaced(const CLI::App& command, const std::string& argument) {
  return usage_error(
      fmt::format("'{}' does not belong there; flags and their values follow the command: {} ...", argument,
                  full_name(command)),
      command);
}

int unknown_command(const CLI::App& program, const std::string& argument) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) names.push_back(command->get_name());
  if (argument.starts_with('-')) return unknown_argument(program, argument);
  return usage_error(
      fmt::format("{} has no command '{}'{}", full_name(program), argument, did_you_mean(argument, names)),
      program);
}

// The command that was being parsed.
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.front());
}

// In the list of commands only the first line of each description.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string description = command->get_description();
    return fmt::format("  {:<{}}{}\n", command->get_name(), get_column_width() - 2,
                       description.substr(0, description.find('\n')));
  }
  std::string make_description(const CLI::App* app) const override { return app->get_description() + "\n\n"; }
};

int run(int argc, char** argv) {
  want_json_errors(
      std::any_of(argv + 1, argv + argc, [](const char* a) { return std::string_view(a) == "--json"; }));
  CLI::App program(kDescription, "kvring");
  // Leftovers are collected, not refused, so that the message can suggest.
  program.allow_extras();
  program.require_subcommand(0, 1);
  program.footer(kFooter);
  program.formatter(std::make_shared<HelpFormatter>());  // subcommands inherit these three
  program.set_version_flag("--version", version(), "Print the version");
  std::vector<Command> commands = {add_attend(program),   add_verify(program), add_generate(program),
                                   add_diagnose(program), add_plan(program),   add_simulate(program),
                                   add_trace(program),    add_info(program)};
  for (Command& command : add_bench(program)) commands.push_back(std::move(command));
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return prints_messages() ? program.exit(success) : kDone;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), innermost(program));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const CLI::App& app = *command.app;
    if (const auto extras = app.remaining(); !extras.empty())
      return app.get_subcommands({}).empty() ? unknown_argument(app, extras.front())
                                             : unknown_command(app, extras.front());
    for (const CLI::App* outer = app.get_parent(); outer != nullptr; outer = outer->get_parent()) {
      if (const auto extras = outer->remaining(); !extras.empty()) return misplaced(app, extras.front());
    }
    want_json_errors(command.json());
    try {
      return command.run();
    } catch (const Error& error) {
      return report(error);
    } catch (const std::bad_alloc&) {
      return report(OutOfBudget("the machine has no memory left; use more ranks"));
    } catch (const std::exception& error) {
      return report(Internal(error.what()));
    }
  }
  if (const auto extras = program.remaining(); !extras.empty())
    return unknown_command(program, extras.front());
  ending = {true, ErrorCode::kInvalidArgument, "no command was given (see kvring --help)"};
  if (prints_messages()) message("{}", program.help());
  return kUsage;
}

}  // namespace
}  // namespace kvring::cli

int main(int argc, char** argv) {
  // A limit on file size is then an error of the write, as a full disk is, and temporary files go.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = kvring::cli::run(argc, argv);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::perror("kvring: cannot write to standard output");
    if (code == kvring::cli::kDone) code = kvring::cli::kInternalError;
  }
  kvring::cli::leave_together(code, kvring::cli::ending);
  return code;
}
