#include "cli/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/suggest.h"
#include "kvring/error.h"

namespace kvring::cli {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr std::array<Unit, 8> kUnits = {{{"", 1},
                                         {"B", 1},
                                         {"KiB", 0x1p10},
                                         {"MiB", 0x1p20},
                                         {"GiB", 0x1p30},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9}}};

std::string read_list_file(std::string_view flag, const std::string& path) {
  constexpr std::uintmax_t kLongestList = 64 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw InputFile(fmt::format("{}: '{}' is not a file that can be read", flag, path));
  if (std::filesystem::file_size(path, error) > kLongestList)
    throw InputFile(fmt::format("{}: {} is longer than {} bytes", flag, path, kLongestList));
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw InputFile(
        fmt::format("{}: cannot read {}: {}", flag, path, std::generic_category().message(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // "1, 2" and "1 2" alike: a comma with white space around it, or just that, separates.
  std::string list;
  bool space = false;
  for (char c : text) {
    if (c == '\n' || c == '\r' || c == '\t' || c == ' ') {
      space = true;
      continue;
    }
    if (space && c != ',' && !list.empty() && list.back() != ',') list += ',';
    space = false;
    list += c;
  }
  return list;
}

}  // namespace

std::int64_t parse_integer(std::string_view flag, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    throw InvalidArgument(fmt::format("{} is {}, which does not fit 64 bits", flag, text));
  if (error != std::errc() || end != text.data() + text.size())
    throw InvalidArgument(fmt::format("{} is '{}'; it must be a whole number", flag, text));
  return value;
}

int parse_count(std::string_view flag, std::string_view text, int most) {
  const std::int64_t value = parse_integer(flag, text);
  if (value < 1 || value > most)
    throw InvalidArgument(fmt::format("{} is {}; it must be 1 to {}", flag, value, most));
  return static_cast<int>(value);
}

double parse_real(std::string_view flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || text.front() == ' ')
    throw InvalidArgument(fmt::format("{} is '{}'; it must be a number", flag, text));
  return value;
}

std::int64_t parse_bytes(std::string_view flag, const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit_name = text.substr(digits);
  const auto unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return unit_name == u.name; });
  char* end = nullptr;
  const std::string number = text.substr(0, digits);
  const double value = std::strtod(number.c_str(), &end);
  if (unit == kUnits.end() || number.empty() || *end != '\0')
    throw InvalidArgument(
        fmt::format("{} is '{}'; it must be a number of bytes, or a number with KiB, MiB, GiB, KB, MB or GB, "
                    "such as 512MiB",
                    flag, text));
  const double bytes = std::floor(value * unit->bytes);
  if (bytes < 1) throw InvalidArgument(fmt::format("{} is {}; it must be at least 1 byte", flag, text));
  if (bytes >= 0x1p63) throw InvalidArgument(fmt::format("{} is {}, which does not fit 64 bits", flag, text));
  return static_cast<std::int64_t>(bytes);
}

std::vector<std::int64_t> parse_list(std::string_view flag, const std::string& text) {
  const std::string list = text.starts_with('@') ? read_list_file(flag, text.substr(1)) : text;
  std::vector<std::int64_t> values;
  std::string_view rest = list;
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    values.push_back(
        parse_integer(fmt::format("entry {} of {}", values.size(), flag), rest.substr(0, comma)));
    if (comma == rest.size()) return values;
    rest.remove_prefix(comma + 1);
  }
}

std::array<std::int64_t, 4> parse_shape(std::string_view flag, const std::string& text) {
  const std::vector<std::int64_t> extents = parse_list(flag, text);
  if (extents.size() != 4)
    throw InvalidArgument(
        fmt::format("{} is '{}'; it must be batch,seqlen,heads,dim, such as 1,4096,8,128", flag, text));
  return {extents[0], extents[1], extents[2], extents[3]};
}

std::size_t parse_choice(std::string_view flag, std::string_view text,
                         const std::vector<std::string>& choices) {
  const auto it = std::find(choices.begin(), choices.end(), text);
  if (it == choices.end())
    throw InvalidArgument(fmt::format("{} is '{}'; it must be one of {}{}", flag, text,
                                      fmt::join(choices, ", "), did_you_mean(text, choices)));
  return static_cast<std::size_t>(it - choices.begin());
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t i = 0;
  for (; bytes >= 1024 && i + 1 < kNames.size(); ++i) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, i == 0 ? 0 : 1, kNames[i]);
}

}  // namespace kvring::cli
