// "Did you mean": the nearest of the words that would have worked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvring::cli {

// "; did you mean WORD?" for the nearest word, or "" when none is near enough to be a slip of the hand: at
// most a third of the letters wrong.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words);

}  // namespace kvring::cli
