#include "cache/placing.h"

#include <algorithm>

namespace kvring {

Placing::Placing(int ranks, std::int64_t tile)
    : tile_(tile), ranges_(static_cast<std::size_t>(ranks)), held_(static_cast<std::size_t>(ranks)) {}

void Placing::give(int rank, std::int64_t tokens, std::vector<std::vector<Range>>& parts) {
  if (tokens == 0) return;
  const auto r = static_cast<std::size_t>(rank);
  for (std::vector<Range>* ranges : {&ranges_[r], &parts[r]}) {
    if (!ranges->empty() && ranges->back().end == tokens_)
      ranges->back().end += tokens;
    else
      ranges->push_back({tokens_, tokens_ + tokens});
  }
  held_[r] += tokens;
  tokens_ += tokens;
  last_ = rank;
}

int Placing::emptiest() const {
  return static_cast<int>(std::min_element(held_.begin(), held_.end()) - held_.begin());
}

std::vector<Shard> Placing::extend(std::int64_t tokens) {
  const auto ranks = static_cast<int>(held_.size());
  std::vector<std::vector<Range>> parts(held_.size());
  const std::int64_t end = tokens_ + tokens;
  if (tokens_ % tile_ != 0) give(last_, std::min(tokens, tile_ - tokens_ % tile_), parts);
  // Two chunks of whole tiles for each rank, first and last, and so on inwards: the causal triangle is flat.
  const std::int64_t chunk = (end - tokens_) / tile_ / (2 * ranks) * tile_;
  for (int c = 0; c < 2 * ranks && chunk > 0; ++c) give(c < ranks ? c : 2 * ranks - 1 - c, chunk, parts);
  while (tokens_ < end) give(emptiest(), std::min(tile_, end - tokens_), parts);
  std::vector<Shard> shards;
  for (const auto& ranges : parts) shards.emplace_back(ranges);
  return shards;
}

Layout Placing::layout() const {
  Layout layout;
  layout.spec.kind = LayoutKind::kCustom;
  layout.tokens = tokens_;
  for (const auto& ranges : ranges_) layout.shards.emplace_back(ranges);
  return layout;
}

std::int64_t most_rows(std::int64_t tokens, int ranks, std::int64_t tile) {
  const std::int64_t tiles = (tokens + tile - 1) / tile;
  return std::min(tokens, (tiles + ranks - 1) / ranks * tile);
}

}  // namespace kvring
