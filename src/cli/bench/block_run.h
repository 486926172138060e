// One case as it is timed: queries against a block that is packed already.
#pragma once

#include <functional>
#include <vector>

#include "cli/bench/random_tensor.h"
#include "runtime/block.h"
#include "runtime/block_attention.h"

namespace kvring::cli {

// A rank that owns the whole sequence, all heads in one lap. Takes all memory and packs K and V when made:
// an owner packs once, whatever attends the block then. Queries are packed and rows finished by run().
class BlockRun {
 public:
  BlockRun(const Problem& problem, int threads);
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  // `between` is called from time to time with the share done.
  void run(const std::function<void(double)>& between = {});

  // The parts of run(), and what came before it.
  void pack();
  void begin();
  void attend(const std::function<void(double)>& between = {});
  void finish();

 private:
  Problem problem_;
  Layout q_layout_, kv_layout_;
  Lap lap_;
  QueryPanels panels_;
  BlockAttention attention_;
  std::vector<BlockMap> maps_;
  AlignedBuffer block_, accumulators_;
  QuerySet set_;
  RandomTensor q_, k_, v_, out_;  // k_ and v_ are one head that stands for all
};

}  // namespace kvring::cli
