// Flags of the command line are kept as typed and understood later, so that every message is ours.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace kvring::cli {

// Adds a flag with a value to a group of the help.
inline CLI::Option* add(CLI::App& app, const char* group, const char* flag, std::optional<std::string>& value,
                        const char* type, const char* help) {
  return app.add_option(flag, value, help)->type_name(type)->group(group);
}

}  // namespace kvring::cli
