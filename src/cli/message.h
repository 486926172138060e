// Text for people, on stderr.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace kvring::cli {

// As fmt::print, but never throws for a stderr that is closed or full: the exit code still says what
// happened.
template <typename... Args>
void message(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fputs(text.c_str(), stderr);
}

}  // namespace kvring::cli
