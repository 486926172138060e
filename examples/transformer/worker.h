// One rank of the transformer, at its place in a mesh of data, pipeline, tensor and ring parallelism. A mesh
// of one rank is the plain model.
//
// The result has the same bits on every mesh. Attention has them by kvring's promise. A weight cut by columns
// changes no chain of additions (multiply()). A weight cut by rows does: the products of the ranks must be
// added. So these sums are cut into Model::kChunks chunks at fixed places, whoever holds them, and the chunks
// are added in one fixed binary tree (sum_over_chunks()).
#pragma once

#include <kvring/layout.h>
#include <kvring/mesh.h>
#include <kvring/ring.h>
#include <kvring/transport.h>
#include <mpi.h>

#include <memory>
#include <string_view>
#include <vector>

#include "model.h"

// The ranks that differ from this one along one axis only, as a communicator.
class AxisGroup {
 public:
  // Collective over `world`, whose ranks are the mesh's.
  AxisGroup(MPI_Comm world, const kvring::Mesh& mesh, std::string_view axis);
  ~AxisGroup();
  AxisGroup(const AxisGroup&) = delete;
  AxisGroup& operator=(const AxisGroup&) = delete;

  MPI_Comm communicator() const { return communicator_; }
  int rank() const { return rank_; }  // this rank's coordinate along the axis
  int size() const { return size_; }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

struct Job {
  std::int64_t tokens = 0;  // of each batch entry
  std::int64_t batch = 0;
};

// Throws kvring::InvalidArgument, naming the sizes that would work, when the model cannot be cut that way.
void check_job(const kvring::Mesh& mesh, const Job& job);

class Worker {
 public:
  // Collective over `world`, as run() is.
  Worker(MPI_Comm world, const kvring::Mesh& mesh, const Job& job);

  // The last hidden states of this rank's tokens, for each of its batch entries, on the last pipeline stage;
  // on the others nothing. Ranks that differ along tp only all have them.
  std::vector<Matrix> run();

  const kvring::Range& entries() const { return entries_; }  // of the batch
  const kvring::Shard& positions() const { return layouts_.q.shards[static_cast<std::size_t>(ring_.rank())]; }
  double attention_s() const { return attention_s_; }           // seconds in the ring, all layers and entries
  std::int64_t ring_bytes_sent() const { return bytes_sent_; }  // by this rank to the next of its ring

 private:
  void attention_block(const LayerWeights& layer, Matrix& x);
  void feed_forward_block(const LayerWeights& layer, Matrix& x);
  Matrix sum_over_chunks(const Matrix& x, const Matrix& weight) const;

  AxisGroup dp_, pp_, tp_, ring_;
  kvring::Range entries_;            // data parallelism: the batch entries of this replica
  std::vector<LayerWeights> stage_;  // pipeline and tensor parallelism: part of some layers
  kvring::Problem problem_;          // attention over all tokens, for this rank's heads
  kvring::Layouts layouts_;          // ring parallelism: which tokens are whose
  std::unique_ptr<kvring::Transport> transport_;
  kvring::Ring attention_;
  double attention_s_ = 0;
  std::int64_t bytes_sent_ = 0;
};
