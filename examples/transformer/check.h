// Is the result of a mesh that of one rank?
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "matrix.h"
#include "worker.h"

struct Comparison {
  std::int64_t values = 0;        // compared: every rank's, so `tp` times those of the whole
  std::int64_t unlike = 0;        // of these, with other bits
  double largest_difference = 0;  // NaN counts as infinite
  std::uint64_t digest = 0;       // of the mesh's hidden states, all entries and tokens
  std::uint64_t one_rank_digest = 0;
  bool identical() const { return values > 0 && unlike == 0 && digest == one_rank_digest; }
};

// Compares every hidden state that some rank of `world` ended with, bit for bit, with what rank 0 computes
// alone. Collective. `mine` is what this rank's worker.run() returned. The result is valid on all ranks.
Comparison compare_with_one_rank(MPI_Comm world, const kvring::Mesh& mesh, const Job& job,
                                 const Worker& worker, const std::vector<Matrix>& mine);
