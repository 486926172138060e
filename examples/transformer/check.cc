#include "check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace {

// Sums of these over elements do not depend on the order, so no rank needs the whole for a digest.
std::uint64_t digest_of(std::int64_t number, float value) {
  return scramble(scramble(static_cast<std::uint64_t>(number)) + std::bit_cast<std::uint32_t>(value));
}

void compare(float mine, float one, Comparison& result) {
  ++result.values;
  if (std::bit_cast<std::uint32_t>(mine) == std::bit_cast<std::uint32_t>(one)) return;
  ++result.unlike;
  const double difference = std::abs(double{mine} - double{one});
  result.largest_difference =
      std::max(result.largest_difference,
               std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
}

std::uint64_t digest_of_entry(std::int64_t entry, const Matrix& whole) {
  std::uint64_t digest = 0;
  for (std::int64_t i = 0; i < std::ssize(whole.values); ++i)
    digest += digest_of(entry * std::ssize(whole.values) + i, whole.row(0)[i]);
  return digest;
}

// The rows `x` of those positions with the same rows of the whole entry.
void compare_rows(std::int64_t entry, const Matrix& x, const kvring::Shard& positions, const Matrix& whole,
                  bool first_of_tp, Comparison& result) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const std::int64_t position = positions.position(i);
    for (std::int64_t j = 0; j < x.columns; ++j) {
      compare(x.row(i)[j], whole.row(position)[j], result);
      if (first_of_tp)  // each value once
        result.digest += digest_of((entry * whole.rows + position) * x.columns + j, x.row(i)[j]);
    }
  }
}

void sum_over_ranks(MPI_Comm world, Comparison& result) {
  MPI_Allreduce(MPI_IN_PLACE, &result.values, 1, MPI_INT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.unlike, 1, MPI_INT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.largest_difference, 1, MPI_DOUBLE, MPI_MAX, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.digest, 1, MPI_UINT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.one_rank_digest, 1, MPI_UINT64_T, MPI_SUM, world);
}

}  // namespace

Comparison compare_with_one_rank(MPI_Comm world, const kvring::Mesh& mesh, const Job& job,
                                 const Worker& worker, const std::vector<Matrix>& mine) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  const bool first_of_tp = mesh.coordinate(rank, "tp") == 0;
  // Only here does a rank hold whole sequences: rank 0 all of them, the others one at a time.
  std::vector<Matrix> one;
  if (rank == 0) one = Worker(MPI_COMM_SELF, kvring::parse_mesh("ring=1", 1), job).run();
  Matrix whole(job.tokens, Model::kWidth);
  Comparison result;
  for (std::int64_t entry = 0; entry < job.batch; ++entry) {
    if (rank == 0) {
      whole = std::move(one[static_cast<std::size_t>(entry)]);
      result.one_rank_digest += digest_of_entry(entry, whole);
    }
    MPI_Bcast(whole.values.data(), static_cast<int>(whole.values.size()), MPI_FLOAT, 0, world);
    if (mine.empty() || entry < worker.entries().begin || entry >= worker.entries().end) continue;
    const Matrix& x = mine[static_cast<std::size_t>(entry - worker.entries().begin)];
    compare_rows(entry, x, worker.positions(), whole, first_of_tp, result);
  }
  sum_over_ranks(world, result);
  return result;
}
