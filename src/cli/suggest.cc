#include "cli/suggest.h"

#include <algorithm>
#include <numeric>

namespace kvring::cli {
namespace {

// Levenshtein's distance, one row of the table at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words) {
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& word : words) {
    const std::size_t d = distance(typed, word);
    if (d >= least) continue;
    least = d;
    nearest = &word;
  }
  return nearest == nullptr ? "" : "; did you mean " + *nearest + "?";
}

}  // namespace kvring::cli
