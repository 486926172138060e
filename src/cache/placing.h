// Who takes which new tokens of a conversation. A pure function of the lengths of its turns.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/layout.h"

namespace kvring {

class Placing {
 public:
  Placing(int ranks, std::int64_t tile);

  // Places `tokens` more, and returns each rank's part of them, as positions of the whole.
  std::vector<Shard> extend(std::int64_t tokens);

  std::int64_t tokens() const noexcept { return tokens_; }
  Layout layout() const;  // of all tokens

 private:
  void give(int rank, std::int64_t tokens, std::vector<std::vector<Range>>& parts);
  int emptiest() const;

  std::int64_t tile_;
  std::int64_t tokens_ = 0;
  int last_ = 0;                            // rank of the last tile
  std::vector<std::vector<Range>> ranges_;  // by rank
  std::vector<std::int64_t> held_;          // tokens, by rank
};

// The most tokens that a rank holds of `tokens`, however they came.
std::int64_t most_rows(std::int64_t tokens, int ranks, std::int64_t tile);

}  // namespace kvring
