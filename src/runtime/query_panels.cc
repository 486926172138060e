#include "runtime/query_panels.h"

#include <algorithm>
#include <limits>

namespace kvring {

QueryPanels::QueryPanels(const Problem& problem, const Shard& queries)
    : queries_(&queries),
      mask_(problem),
      group_(problem.q_heads / problem.kv_heads),
      rows_(queries.tokens() * group_) {}

int QueryPanels::panel_rows(std::int64_t panel) const noexcept {
  return static_cast<int>(std::min<std::int64_t>(kPanelRows, rows_ - panel * kPanelRows));
}

QueryPanels::Row QueryPanels::row(std::int64_t panel, int i) const noexcept {
  const std::int64_t r = panel * kPanelRows + i;
  return {r / group_, r % group_};
}

PanelView::PanelView(const QueryPanels& panels, std::int64_t panel) : rows_(panels.panel_rows(panel)) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  hull_ = {kFar, 0};
  common_ = {0, kFar};
  std::int64_t last_token = -1;
  for (int i = 0; i < rows_; ++i) {
    const std::int64_t token = panels.row(panel, i).token;
    seen_[i] = token == last_token ? seen_[i - 1] : panels.mask_.visible(panels.queries_->position(token));
    last_token = token;
    common_ = {std::max(common_.begin, seen_[i].begin), std::min(common_.end, seen_[i].end)};
    if (seen_[i].size() == 0) continue;
    hull_ = {std::min(hull_.begin, seen_[i].begin), std::max(hull_.end, seen_[i].end)};
  }
}

PanelView::Sight PanelView::look(const Shard& shard, const Piece& piece, RowKeys& keys) const noexcept {
  const std::int64_t first = shard.position(piece.first_row);
  const std::int64_t last = shard.position(piece.first_row + piece.keys - 1);
  if (hull_.begin > last || hull_.end <= first) return Sight::kEmpty;
  if (common_.begin <= first && common_.end > last) return Sight::kFull;
  bool any = false;
  for (int i = 0; i < kPanelRows; ++i) {
    keys.begin[i] = keys.end[i] = 0;
    if (i >= rows_ || seen_[i].size() == 0) continue;
    keys.begin[i] = static_cast<std::int32_t>(rows_before(shard, piece, seen_[i].begin));
    keys.end[i] = static_cast<std::int32_t>(rows_before(shard, piece, seen_[i].end));
    any |= keys.begin[i] < keys.end[i];
  }
  return any ? Sight::kPartial : Sight::kEmpty;
}

}  // namespace kvring
