#include "check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

}  // namespace

Comparison compare_with_one_rank(MPI_Comm world, const kvring::Mesh& mesh, const Job& job,
                                 const Worker& worker, const std::vector<Matrix>& mine) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  std::vector<Matrix> one(static_cast<std::size_t>(job.batch), Matrix(job.tokens, Model::kWidth));
  if (rank == 0) {
    const kvring::Mesh alone = kvring::parse_mesh("dp=1,pp=1,tp=1,ring=1", 1);
    one = Worker(MPI_COMM_SELF, alone, job).run();
  }
  Comparison result;
  const bool first_of_tp = mesh.coordinate(rank, "tp") == 0;
  for (std::int64_t entry = 0; entry < job.batch; ++entry) {
    Matrix& whole = one[static_cast<std::size_t>(entry)];
    MPI_Bcast(whole.values.data(), static_cast<int>(whole.values.size()), MPI_FLOAT, 0, world);
    if (rank == 0) {
      for (std::int64_t i = 0; i < std::ssize(whole.values); ++i)
        result.one_rank_digest += digest_of(entry * std::ssize(whole.values) + i, whole.row(0)[i]);
    }
    if (mine.empty() || entry < worker.entries().begin || entry >= worker.entries().end) continue;
    const Matrix& x = mine[static_cast<std::size_t>(entry - worker.entries().begin)];
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t position = worker.positions().position(i);
      for (std::int64_t j = 0; j < x.columns; ++j) {
        compare(x.row(i)[j], whole.row(position)[j], result);
        if (first_of_tp)
          result.digest += digest_of((entry * job.tokens + position) * x.columns + j, x.row(i)[j]);
      }
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &result.values, 1, MPI_INT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.unlike, 1, MPI_INT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.largest_difference, 1, MPI_DOUBLE, MPI_MAX, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.digest, 1, MPI_UINT64_T, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, &result.one_rank_digest, 1, MPI_UINT64_T, MPI_SUM, world);
  return result;
}
