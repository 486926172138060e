// Several rings in one process: ranks are threads, and every group of a mesh has transports of its own.
#include <map>

#include "tests/mesh/mesh_rings.h"

namespace kvring::test {
namespace {

// One end for every rank, connected with the others of its group along `axes`.
Transports transports_along(const Mesh& mesh, const std::vector<std::string_view>& axes) {
  Transports ends(static_cast<std::size_t>(mesh.ranks()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int> group = mesh.group(rank, axes);
    if (group.front() != rank) continue;
    Transports made = make_inproc_transports(static_cast<int>(group.size()), kDeadline);
    for (std::size_t i = 0; i < group.size(); ++i)
      ends[static_cast<std::size_t>(group[i])] = std::move(made[i]);
  }
  return ends;
}

// Runs body(rank) on a thread for every rank of the mesh; what each ended with.
std::vector<Ending> on_mesh(const Mesh& mesh, const std::function<void(int)>& body) {
  std::vector<Ending> endings(static_cast<std::size_t>(mesh.ranks()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        endings[static_cast<std::size_t>(rank)] = {true, true, error.code(), error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return endings;
}

TEST(MeshRings, RingsOfAnyAxesWorkAtTheSameTime) {
  struct Case {
    const char* mesh;
    int ranks;
    std::vector<std::string_view> axes;
  };
  for (const Case& c : std::initializer_list<Case>{{"tp=4,ring=2", 8, {"ring"}},
                                                   {"ring=4,tp=2", 8, {"ring"}},  // every second rank
                                                   {"dp=2,tp=2,ring=2", 8, {"dp", "ring"}},
                                                   {"dp=3,ring=1", 3, {"ring"}},
                                                   {"dp=2,ring=3", 6, {"ring"}}}) {
    const Mesh mesh = parse_mesh(c.mesh, c.ranks);
    const Transports ends = transports_along(mesh, c.axes);
    std::map<int, Work> work;  // by the first rank of the group
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const int first = mesh.group(rank, c.axes).front();
      if (!work.contains(first)) work.emplace(first, Work::make(300 + static_cast<std::uint64_t>(first)));
    }
    expect_no_failure(on_mesh(mesh, [&](int rank) {
      Transport& end = *ends[static_cast<std::size_t>(rank)];
      Member member(work.at(mesh.group(rank, c.axes).front()), end);
      for (int call = 0; call < 3; ++call) EXPECT_TRUE(member.attend()) << c.mesh << ", rank " << rank;
    }));
  }
}

TEST(MeshRings, ARankTakesTurnsInTheRingOfItsRowAndThatOfItsColumn) {
  const Mesh mesh({{"column", 2}, {"row", 3}});  // a group along "row" is a row of 3
  const Transports rows = transports_along(mesh, {"row"}), columns = transports_along(mesh, {"column"});
  std::vector<Work> row_work, column_work;
  for (std::uint64_t i = 0; i < 2; ++i) row_work.push_back(Work::make(400 + i));
  for (std::uint64_t i = 0; i < 3; ++i) column_work.push_back(Work::make(410 + i, DType::kBF16));
  expect_no_failure(on_mesh(mesh, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    Member in_row(row_work[at / 3], *rows[at]), in_column(column_work[at % 3], *columns[at]);
    for (int call = 0; call < 4; ++call) {
      EXPECT_TRUE(in_row.attend()) << "row, rank " << rank;
      EXPECT_TRUE(in_column.attend()) << "column, rank " << rank;
    }
  }));
}

TEST(MeshRings, AnErrorInOneRingLeavesTheOthersAlone) {
  const Mesh mesh = parse_mesh("dp=2,ring=3", 6);
  const Work work = Work::make(500);
  const auto run = [&] {
    Transports ends = transports_along(mesh, {"ring"});
    return on_mesh(mesh, [&](int rank) {
      const std::unique_ptr<Transport> end = std::move(ends[static_cast<std::size_t>(rank)]);
      Member member(work, *end);
      if (rank == 1) {
        end->fail("rank 1 of the mesh gives up");
        throw TransportError("gave up");
      }
      for (int call = 0; call < 3; ++call) EXPECT_TRUE(member.attend()) << "rank " << rank;
    });
  };
  const std::vector<Ending> endings = run();
  for (std::size_t rank = 0; rank < endings.size(); ++rank)
    EXPECT_EQ(endings[rank].failed, rank < 3) << "rank " << rank << ": " << endings[rank].message;
}

}  // namespace
}  // namespace kvring::test
