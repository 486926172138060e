#include "planner/text.h"

#include <fmt/format.h>

#include <array>

namespace kvring {
namespace {

struct Unit {
  const char* name;
  double size;
};

template <std::size_t kCount>
std::string scaled(double value, const std::array<Unit, kCount>& units) {
  for (const Unit& unit : units) {
    if (value >= unit.size || &unit == &units.back())
      return fmt::format("{:.3g} {}", value / unit.size, unit.name);
  }
  return "";
}

}  // namespace

std::string seconds_text(double seconds) {
  constexpr std::array<Unit, 4> kUnits = {{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
  if (seconds == 0) return "0 s";
  if (seconds >= 1000) return fmt::format("{} s", count_text(static_cast<std::int64_t>(seconds)));
  return scaled(seconds, kUnits);
}

std::string count_text(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3;) text.insert(i -= 3, 1, ',');
  return text;
}

std::string decimal_bytes_text(double bytes) {
  constexpr std::array<Unit, 7> kUnits = {
      {{"EB", 1e18}, {"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}};
  return scaled(bytes, kUnits);
}

std::string percent_text(double share) { return fmt::format("{:.3g} %", share * 100); }

}  // namespace kvring
