// Who needs whose keys: what every schedule is made from.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"

namespace kvring {

// A rank attends a block when one of its queries sees a key of it. Throws InvalidArgument when layouts and
// problem do not fit together.
class Needs {
 public:
  Needs(const Problem& problem, const Layouts& layouts);

  std::int32_t ranks() const noexcept { return ranks_; }
  bool attends(std::int32_t user, std::int32_t owner) const noexcept {
    return attended_[static_cast<std::size_t>(user) * static_cast<std::size_t>(ranks_) +
                     static_cast<std::size_t>(owner)] != 0;
  }
  bool has_queries(std::int32_t rank) const noexcept { return queries_[static_cast<std::size_t>(rank)] != 0; }

  // The rank so many hops after `rank` on the ring, or before it.
  std::int32_t after(std::int32_t rank, std::int32_t hops) const noexcept {
    return (rank + hops % ranks_ + ranks_) % ranks_;
  }
  // Hops to the last rank on the ring that attends the block of `owner`; 0: none but itself.
  std::int32_t block_reach(std::int32_t owner) const noexcept {
    return block_reach_[static_cast<std::size_t>(owner)];
  }
  // Hops to the last rank on the ring whose block the queries of `owner` attend.
  std::int32_t query_reach(std::int32_t owner) const noexcept {
    return query_reach_[static_cast<std::size_t>(owner)];
  }

 private:
  std::int32_t ranks_;
  std::vector<char> attended_;  // by user, then owner
  std::vector<char> queries_;   // by rank: it has some
  std::vector<std::int32_t> block_reach_, query_reach_;
};

}  // namespace kvring
