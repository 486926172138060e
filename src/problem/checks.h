// Checks that both a Problem and a Layout make.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvring {

constexpr std::int64_t kMaxTile = 32768;
constexpr std::int64_t kMaxTiles = std::int64_t{1} << 20;  // of a document

// Throws InvalidArgument unless 1 <= tile <= kMaxTile.
void check_tile(std::int64_t tile);

// Throws InvalidArgument unless `cu_seqlens` is empty or has at least two entries that start at 0, never
// fall and end at `tokens`. `name` and `tokens_name` are what the message calls the two.
void check_cu_seqlens(std::string_view name, const std::vector<std::int64_t>& cu_seqlens,
                      std::string_view tokens_name, std::int64_t tokens);

}  // namespace kvring
