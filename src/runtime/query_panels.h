// The query rows of one rank as the kernel takes them: panels of 48 rows of one KV unit.
//
// The rows of a unit are its tokens times the query heads that share the KV head, token-major: grouped heads
// fill a panel together, look at nearly the same keys, and read each tile once.
#pragma once

#include <cstdint>

#include "kernel/panel.h"
#include "kernel/tile.h"
#include "kvring/problem.h"
#include "layout/pieces.h"
#include "mask/mask.h"

namespace kvring {

class QueryPanels {
 public:
  QueryPanels(const Problem& problem, const Shard& queries);

  std::int64_t rows() const noexcept { return rows_; }  // of one unit
  std::int64_t panels() const noexcept { return (rows_ + kPanelRows - 1) / kPanelRows; }
  // Rows in the panel, 1 .. 48.
  int panel_rows(std::int64_t panel) const noexcept;

  std::int64_t tokens() const noexcept { return queries_->tokens(); }
  std::int64_t group() const noexcept { return group_; }  // query heads per KV head

  // Row i of a panel: local token, and which of the query heads that share the KV head.
  struct Row {
    std::int64_t token, member;
  };
  Row row(std::int64_t panel, int i) const noexcept;

 private:
  friend class PanelView;
  const Shard* queries_;
  Mask mask_;
  std::int64_t group_;
  std::int64_t rows_;
};

// What the rows of one panel see, as global intervals, and how that falls on a piece of keys.
class PanelView {
 public:
  PanelView(const QueryPanels& panels, std::int64_t panel);

  enum class Sight { kEmpty, kPartial, kFull };
  // kPartial fills `keys`.
  Sight look(const Shard& shard, const Piece& piece, RowKeys& keys) const noexcept;

 private:
  int rows_;
  Range hull_;    // of all that some row sees
  Range common_;  // what every row sees; may be empty (begin >= end)
  Range seen_[kPanelRows];
};

}  // namespace kvring
