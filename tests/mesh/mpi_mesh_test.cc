// Several rings in one MPI job: sub-communicators of a mesh. Run by mpirun with 4 to 8 ranks; every rank runs
// every test.
#include <mpi.h>

#include "kvring/mpi.h"
#include "tests/mesh/mesh_rings.h"
#include "tests/support/mpi_main.h"

namespace kvring::test {
namespace {

class MpiMesh : public testing::Test {
 protected:
  void SetUp() override {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  int rank_ = 0;
  int size_ = 0;
};

// The communicator of the group along `axes` that `rank` belongs to.
class Group {
 public:
  Group(const Mesh& mesh, int rank, const std::vector<std::string_view>& axes)
      : first_(mesh.group(rank, axes).front()) {
    MPI_Comm_split(MPI_COMM_WORLD, first_, rank, &communicator_);
  }
  ~Group() { MPI_Comm_free(&communicator_); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int first() const { return first_; }  // the group's first rank, which names the group
  MPI_Comm communicator() const { return communicator_; }
  // What a program does on its own beside the ring: the sum of all ranks' numbers in the job.
  int sum_of(int number) const {
    int sum = 0;
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, communicator_);
    return sum;
  }

 private:
  int first_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

Work work_of(const Group& group, std::uint64_t seed) {
  return Work::make(seed + static_cast<std::uint64_t>(group.first()));
}

// Rings of 2 where the ranks are even, of 3 for 6, of all where they divide by neither.
std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> all;
  for (int ring = 1; ring <= ranks; ++ring) {
    if (ranks % ring != 0) continue;
    all.push_back(Mesh({{"other", ranks / ring}, {"ring", ring}}));  // neighbours are a ring
    all.push_back(Mesh({{"ring", ring}, {"other", ranks / ring}}));  // ranks far apart are a ring
  }
  return all;
}

TEST_F(MpiMesh, DisjointRingsWorkAtTheSameTime) {
  for (const Mesh& mesh : meshes(size_)) {
    const Group group(mesh, rank_, {"ring"});
    const Work work = work_of(group, 600);
    const auto end = make_mpi_transport(group.communicator(), kDeadline);
    ASSERT_EQ(end->size(), mesh.size("ring"));
    ASSERT_EQ(end->rank(), mesh.coordinate(rank_, "ring"));
    Member member(work, *end);
    for (int call = 0; call < 3; ++call)
      EXPECT_TRUE(member.attend()) << mesh_text(mesh) << ", rank " << rank_;
  }
}

// As a model does: attention in one ring, sums and attention with other ranks in between.
TEST_F(MpiMesh, RowsAndColumnsTakeTurnsWithTheProgramsOwnMessages) {
  for (const Mesh& mesh : meshes(size_)) {
    const Group row(mesh, rank_, {"ring"}), column(mesh, rank_, {"other"});
    const Work row_work = work_of(row, 700), column_work = work_of(column, 800);
    const auto row_end = make_mpi_transport(row.communicator(), kDeadline);
    const auto column_end = make_mpi_transport(column.communicator(), kDeadline);
    Member in_row(row_work, *row_end), in_column(column_work, *column_end);
    const int all_ranks = size_ * (size_ - 1) / 2;
    for (int call = 0; call < 3; ++call) {
      EXPECT_TRUE(in_row.attend()) << mesh_text(mesh) << ", row, rank " << rank_;
      const int row_sum = row.sum_of(rank_);
      EXPECT_TRUE(in_column.attend()) << mesh_text(mesh) << ", column, rank " << rank_;
      EXPECT_EQ(column.sum_of(row_sum), all_ranks);
    }
  }
}

TEST_F(MpiMesh, AnErrorInOneRingLeavesTheOthersAlone) {
  if (size_ % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  const Mesh mesh({{"other", 2}, {"ring", size_ / 2}});
  const Group group(mesh, rank_, {"ring"});
  const Work work = work_of(group, 900);
  const auto end = make_mpi_transport(group.communicator(), kDeadline);
  std::string message;
  try {
    Member member(work, *end);
    if (rank_ == 1) {
      end->fail("it gives up");
      throw TransportError("gave up");
    }
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(member.attend()) << "rank " << rank_;
  } catch (const TransportError& error) {
    message = error.what();
  }
  EXPECT_EQ(!message.empty(), group.first() == 0) << message;
}

}  // namespace
}  // namespace kvring::test

int main(int argc, char** argv) { return kvring::test::run_mpi_tests(argc, argv); }
