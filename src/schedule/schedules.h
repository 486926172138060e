// The schedules, one per file, for two ranks or more. What each moves, in what order, is all that they differ
// in.
#pragma once

#include <vector>

#include "schedule/needs.h"
#include "schedule/step.h"

namespace kvring {

// Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers" (arXiv 2310.01889): at step t rank r
// holds the block of rank r - t, if any rank from r on needs it. P steps.
std::vector<Step> ring_steps(const Needs& needs, std::int32_t rank);

// Every block goes straight to all who need it, then all are attended at once; as in section 3.3.2 of "The
// Llama 3 Herd of Models" (arXiv 2407.21783). 2 steps.
std::vector<Step> all_gather_steps(const Needs& needs, std::int32_t rank);

// Yang et al., "Context Parallelism for Scalable Million-Token Inference" (arXiv 2411.01783): blocks stay, at
// step t rank r holds the queries of rank r - t. Partials go straight to the queries' owner in the step
// after. P + 1 steps.
std::vector<Step> pass_q_steps(const Needs& needs, std::int32_t rank);

// Jacobs et al., "DeepSpeed Ulysses" (arXiv 2309.14509): tokens are exchanged for heads, so that each rank
// attends whole sequences of its share of the heads; rows go back. The queries of one rank after the other
// are attended, so that rows go back while the next are computed. P + 2 steps.
std::vector<Step> ulysses_steps(const Needs& needs, std::int32_t rank);

// For each rank with queries, who takes part in its tree: itself, the root, then those with keys that they
// see.
class Trees {
 public:
  explicit Trees(const Needs& needs);
  const std::vector<std::int32_t>& members(std::int32_t owner) const noexcept {
    return members_[static_cast<std::size_t>(owner)];
  }
  // Of the rank among the members; -1: it is none.
  std::int32_t place(std::int32_t owner, std::int32_t rank) const noexcept {
    return places_[static_cast<std::size_t>(owner) * members_.size() + static_cast<std::size_t>(rank)];
  }
  std::int32_t rounds() const noexcept { return rounds_; }  // to reach all members of the largest tree

 private:
  std::vector<std::vector<std::int32_t>> members_;
  std::vector<std::int32_t> places_;
  std::int32_t rounds_ = 0;
};

// Shyam et al., "Tree Attention" (arXiv 2408.04093): queries go to all who have keys for them and partials
// come back, both along a binomial tree. 2 ceil(log2 P) + 1 steps.
std::vector<Step> tree_steps(const Needs& needs, const Trees& trees, std::int32_t rank);

}  // namespace kvring
