#include "worker.h"

#include <fmt/format.h>
#include <kvring/error.h>
#include <kvring/mpi.h>

#include <chrono>

namespace {

constexpr double kDeadline = 60;  // seconds that a rank waits for one that shows no sign of life
// The default of 512 would leave sequences this short few tiles to deal out.
constexpr std::int64_t kTile = 64;

kvring::Problem attention_problem(std::int64_t tokens, int tp_size) {
  kvring::Problem p;
  p.q_len = p.kv_len = tokens;
  p.q_heads = Model::kQHeads / tp_size;
  p.kv_heads = Model::kKvHeads / tp_size;
  p.head_dim = p.value_dim = Model::kHeadDim;
  p.causal = true;
  p.tile = kTile;
  return p;
}

kvring::RingOptions one_thread() {
  kvring::RingOptions options;
  options.threads = 1;  // a ring cannot know how many other rings share this host's cores
  return options;
}

// (1, rows, heads, head dim), as kvring takes tensors.
kvring::TensorView heads_view(Matrix& m) {
  return kvring::dense_view<void>(m.values.data(), kvring::DType::kF32,
                                  {1, m.rows, m.columns / Model::kHeadDim, Model::kHeadDim});
}

int count(const Matrix& m) { return static_cast<int>(m.values.size()); }

// The branches of the tree that one rank has: `chunks` products of equally many rows of w, added pairwise.
Matrix multiply_chunks(const Matrix& x, const Matrix& w, const kvring::Range& rows, int chunks) {
  if (chunks == 1) return multiply(x, w, rows);
  const std::int64_t middle = (rows.begin + rows.end) / 2;
  Matrix sum = multiply_chunks(x, w, {rows.begin, middle}, chunks / 2);
  add(sum, multiply_chunks(x, w, {middle, rows.end}, chunks / 2));
  return sum;
}

std::vector<LayerWeights> make_stage(const AxisGroup& pp, const AxisGroup& tp) {
  std::vector<LayerWeights> stage;
  const kvring::Range layers = part(Model::kLayers, pp.size(), pp.rank());
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer)
    stage.emplace_back(static_cast<int>(layer), tp.rank(), tp.size());
  return stage;
}

}  // namespace

AxisGroup::AxisGroup(MPI_Comm world, const kvring::Mesh& mesh, std::string_view axis) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_split(world, mesh.group(rank, {axis}).front(), rank, &communicator_);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
}
AxisGroup::~AxisGroup() { MPI_Comm_free(&communicator_); }

void check_job(const kvring::Mesh& mesh, const Job& job) {
  using kvring::InvalidArgument;
  if (mesh.size("dp") > job.batch)
    throw InvalidArgument(
        fmt::format("dp is {} and the batch has {} entries; use at most dp={}, or --batch {}",
                    mesh.size("dp"), job.batch, job.batch, mesh.size("dp")));
  if (mesh.size("pp") > Model::kLayers)
    throw InvalidArgument(fmt::format("pp is {} and the model has {} layers; use at most pp={}",
                                      mesh.size("pp"), Model::kLayers, Model::kLayers));
  if (Model::kChunks % mesh.size("tp") != 0)
    throw InvalidArgument(fmt::format("tp is {} and the heads come in {} chunks; use tp=1, tp=2 or tp=4",
                                      mesh.size("tp"), Model::kChunks));
}

Worker::Worker(MPI_Comm world, const kvring::Mesh& mesh, const Job& job)
    : dp_(world, mesh, "dp"),
      pp_(world, mesh, "pp"),
      tp_(world, mesh, "tp"),
      ring_(world, mesh, "ring"),
      entries_(part(job.batch, dp_.size(), dp_.rank())),
      stage_(make_stage(pp_, tp_)),
      problem_(attention_problem(job.tokens, tp_.size())),
      layouts_(kvring::make_layouts({}, problem_, ring_.size())),  // zigzag, cut at tiles
      transport_(kvring::make_mpi_transport(ring_.communicator(), kDeadline)),
      attention_(problem_, layouts_, one_thread(), *transport_) {}

// Data parallelism: each replica has its own batch entries. It sends no message, until training sums
// gradients. Pipeline parallelism: each stage has its own layers, and works on an entry while the next has
// the one before.
std::vector<Matrix> Worker::run() {
  std::vector<Matrix> results;
  for (std::int64_t entry = entries_.begin; entry < entries_.end; ++entry) {
    Matrix x(positions().tokens(), Model::kWidth);
    if (pp_.rank() == 0)
      x = embed(entry, positions());
    else
      MPI_Recv(x.values.data(), count(x), MPI_FLOAT, pp_.rank() - 1, 0, pp_.communicator(),
               MPI_STATUS_IGNORE);
    for (const LayerWeights& layer : stage_) {
      attention_block(layer, x);
      feed_forward_block(layer, x);
    }
    if (pp_.rank() + 1 < pp_.size())
      MPI_Send(x.values.data(), count(x), MPI_FLOAT, pp_.rank() + 1, 0, pp_.communicator());
    else
      results.push_back(std::move(x));
  }
  return results;
}

// Tensor parallelism: q, k, v have the columns of this rank's heads, and `out` the matching rows.
// Ring parallelism: the rows of x are this rank's tokens, and only attention looks at any other.
void Worker::attention_block(const LayerWeights& layer, Matrix& x) {
  const Matrix normed = rms_norm(x, layer.attention_norm);
  Matrix q = multiply(normed, layer.q), k = multiply(normed, layer.k), v = multiply(normed, layer.v);
  rotate(q, positions());
  rotate(k, positions());
  Matrix heads(q.rows, q.columns);
  const auto begin = std::chrono::steady_clock::now();
  attention_.attend(as_const(heads_view(q)), as_const(heads_view(k)), as_const(heads_view(v)),
                    heads_view(heads));
  attention_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bytes_sent_ += attention_.report().bytes_sent;
  add(x, sum_over_chunks(heads, layer.out));
}

void Worker::feed_forward_block(const LayerWeights& layer, Matrix& x) {
  const Matrix normed = rms_norm(x, layer.ffn_norm);
  const Matrix hidden = swiglu(multiply(normed, layer.gate), multiply(normed, layer.up));
  add(x, sum_over_chunks(hidden, layer.down));
}

// x times a weight of which each rank of tp has some rows: Megatron's all-reduce, with an order. Every rank
// adds its own chunks pairwise, then pairs of ranks exchange and add, then pairs of pairs. The tree is the
// same for any number of ranks, and a + b = b + a, so that all ranks have the bits of one.
Matrix Worker::sum_over_chunks(const Matrix& x, const Matrix& weight) const {
  Matrix sum = multiply_chunks(x, weight, {0, weight.rows}, Model::kChunks / tp_.size());
  Matrix theirs(sum.rows, sum.columns);
  for (int distance = 1; distance < tp_.size(); distance *= 2) {
    const int partner = tp_.rank() ^ distance;
    MPI_Sendrecv(sum.values.data(), count(sum), MPI_FLOAT, partner, 0, theirs.values.data(), count(theirs),
                 MPI_FLOAT, partner, 0, tp_.communicator(), MPI_STATUS_IGNORE);
    add(sum, theirs);
  }
  return sum;
}
