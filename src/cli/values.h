// The text of a flag as a value. Each throws InvalidArgument naming the flag, the text and what would work.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvring::cli {

std::int64_t parse_integer(std::string_view flag, std::string_view text);
// 1 to `most`.
int parse_count(std::string_view flag, std::string_view text, int most);
// NaN and infinities are numbers here: the problem's own check refuses them by name.
double parse_real(std::string_view flag, const std::string& text);
// "536870912", "512MiB", "1.5GB": bytes, above 0.
std::int64_t parse_bytes(std::string_view flag, const std::string& text);
// "0,5,9", or "@FILE" for a text file of numbers separated by commas or white space (InputFile when it cannot
// be read).
std::vector<std::int64_t> parse_list(std::string_view flag, const std::string& text);
// "1,4096,8,128": batch, seqlen, heads and dim.
std::array<std::int64_t, 4> parse_shape(std::string_view flag, const std::string& text);
// The index of `text` in `choices`.
std::size_t parse_choice(std::string_view flag, std::string_view text,
                         const std::vector<std::string>& choices);

// "512.0 MiB", for people.
std::string bytes_text(double bytes);

}  // namespace kvring::cli
