// (Panel of query rows, key tile) pairs: what the kernel computes whole, masks and skips.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/operation.h"
#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// As BlockAttention::attend() counts them while it computes, of one KV unit. For full and causal masks of one
// document, and layouts of whole tiles; problem and layouts must outlive it.
class TileCount {
 public:
  TileCount(const Problem& problem, const Layouts& layouts);

  // Of the queries of one rank and the keys of another. O(panels log tiles).
  Operation::Tiles of(int query_rank, int key_rank) const;

  // By rank.
  std::vector<std::int64_t> panels() const;
  std::vector<std::int64_t> tiles() const;

 private:
  // Both ends of what the rows of a panel see: all of them the keys below `all`, some those below `some`.
  struct Sight {
    std::int64_t all, some;
  };
  std::vector<std::vector<Sight>> sights_;  // by query rank, then panel
  // By key rank: where tiles begin and end, ascending.
  std::vector<std::vector<std::int64_t>> begins_, ends_;
};

}  // namespace kvring
