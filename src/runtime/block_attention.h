// What a rank computes: query rows against packed blocks, on a pool of threads. It knows no schedule and no
// transport; the executor feeds it queries and blocks as they are there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernel/tile.h"
#include "kvring/operation.h"
#include "kvring/problem.h"
#include "runtime/block.h"
#include "runtime/query_set.h"
#include "runtime/thread_pool.h"
#include "schedule/step.h"
#include "schedule/work_cut.h"
#include "tensor/buffer.h"

namespace kvring {

TileShape make_tile_shape(const Problem& problem);

// A block that queries meet: `data` begins with their first unit.
struct MetBlock {
  const BlockMap* map;
  const std::byte* data;
  std::int64_t unit_bytes;  // from one unit to the next
};

class BlockAttention {
 public:
  // Takes the working memory of the threads; nothing is allocated later.
  BlockAttention(const Problem& problem, int threads);

  // Packs this rank's k and v into `block`.
  void pack(const Lap& lap, const BlockMap& map, const PackSource& source, std::byte* block);
  // Copies a block whose units lie `from_unit` bytes apart, from its first unit on.
  void copy_units(const Lap& lap, const std::byte* from, std::int64_t from_unit, std::byte* to,
                  std::int64_t to_unit);
  // Copies the query rows of a caller's tensor into a parcel, and the rows of a parcel into a caller's
  // tensors.
  void pack_queries(const Lap& lap, const QueryPanels& panels, const RankTensors& tensors,
                    const Problem& problem, std::byte* parcel);
  void unpack_rows(const Lap& units, const RowsParcel& parcel, const RankTensors& tensors,
                   const Problem& problem);

  // Adds the attention of the queries over the blocks and returns what tiles they met. Where the set's cut
  // says at_once, these are all blocks, and rows are finished too. `between` is called on the calling thread
  // from time to time with the finished share.
  Operation::Tiles attend(QuerySet& set, std::span<const MetBlock> blocks,
                          const std::function<void(double)>& between = {});
  // Adds a partial, as partials() gives it, of the same queries over other keys.
  void merge(QuerySet& set, const std::byte* partials);
  // Makes the beginning of set.sums a parcel of partials: all panels of all units, one after the other.
  void gather_partials(QuerySet& set);
  // Writes the finished rows, where attend() has not done it.
  void finish(QuerySet& set);

 private:
  struct ThreadState {
    AlignedBuffer queries;
    TileScratch tile;
    Operation::Tiles tiles;  // of the blocks at hand
  };
  // A part of one item's work on the blocks.
  struct Job {
    std::int64_t unit, first_panel, part;
  };

  void attend_job(QuerySet& set, std::span<const MetBlock> blocks, const Job& job, int thread);
  void finish_panel(QuerySet& set, const Job& job, std::int64_t panel, int thread);
  // Puts the parts of a panel together in the first.
  std::byte* fold_parts(QuerySet& set, const Job& job, std::int64_t panel, int thread);
  // Accumulators of one of the job's panels; empty at their first use.
  std::byte* state(QuerySet& set, const Job& job, std::int64_t panel, int thread);

  TileShape shape_;
  ThreadPool pool_;
  std::vector<ThreadState> threads_;
};

}  // namespace kvring
