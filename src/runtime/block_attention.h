// What a rank computes: the query rows of one lap against packed blocks, on a pool of threads. It knows no
// schedule and no transport; the executor feeds it the blocks as they arrive.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel/tile.h"
#include "kvring/operation.h"
#include "kvring/problem.h"
#include "runtime/block.h"
#include "runtime/query_panels.h"
#include "runtime/rank_tensors.h"
#include "runtime/thread_pool.h"
#include "schedule/step.h"
#include "schedule/work_cut.h"
#include "tensor/buffer.h"

namespace kvring {

TileShape make_tile_shape(const Problem& problem);

class BlockAttention {
 public:
  // Takes the memory for laps of at most work.units KV units; nothing is allocated later. Problem and shard
  // must outlive it.
  explicit BlockAttention(const Work& work);

  // Packs this rank's k and v into `block`.
  void pack(const Lap& lap, const BlockMap& map, const PackSource& source, std::byte* block);
  // Empties the accumulators.
  void begin(const Lap& lap);
  // Adds the attention of the queries over one block and returns what tiles it met. `between` is called on
  // the calling thread from time to time with the finished share of this block.
  Operation::Tiles attend(const RankTensors& tensors, const BlockMap& map, const std::byte* block,
                          const std::function<void(double)>& between = {});
  // Writes the finished rows, where attend() has not done it.
  void finish(const RankTensors& tensors);

  std::int64_t panels() const noexcept { return cut_.panels; }  // of one KV unit

 private:
  struct ThreadState {
    AlignedBuffer queries;
    TileScratch tile;
    Operation::Tiles tiles;  // of the block at hand
  };
  // A part of one item's work on a block.
  struct Job {
    std::int64_t unit, first_panel, part;
  };

  void attend_job(const RankTensors& tensors, const BlockMap& map, const std::byte* block, const Job& job,
                  int thread);
  void finish_panel(const RankTensors& tensors, const Job& job, std::int64_t panel, int thread);
  // Accumulators of one of the job's panels; empty at their first use.
  std::byte* state(const Job& job, std::int64_t panel, int thread);
  std::size_t state_index(const Job& job, std::int64_t panel, int thread) const noexcept;

  QueryPanels panels_;
  TileShape shape_;
  std::int64_t units_;
  WorkCut cut_;
  ThreadPool pool_;
  AlignedBuffer accumulators_;
  std::vector<std::uint8_t> used_;  // by state: emptied since the lap (or, at once, the item) began
  bool finished_ = false;
  std::vector<ThreadState> threads_;
  Lap lap_;
};

}  // namespace kvring
