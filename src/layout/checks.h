// Layouts are plain data: what a caller puts together is checked before a ring relies on it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvring/layout.h"

namespace kvring {

// Throws InvalidArgument, calling the layout `name`, unless every position 0..tokens-1 is on exactly one rank
// and tile_aligned does not promise more than is so. O(ranges log ranges).
void check_layout(std::string_view name, const Layout& layout, const std::vector<std::int64_t>& cu_seqlens,
                  std::int64_t tile);

}  // namespace kvring
