// Rings inside larger jobs: the ranks of a job as a mesh of named axes. Pure arithmetic on rank numbers; what
// a rank is (thread, process) and how it talks to others is the caller's.
//
// `dp=2,pp=2,tp=2,ring=2` is a mesh of 16 ranks. The last axis runs over the nearest ranks: rank 0 and 1 are
// a ring, and so are 2 and 3. The axes before it have wider strides: 2, 4 and 8.
//
// Groups become communicators with the group's first rank as the colour:
//
//   MPI_Comm_split(MPI_COMM_WORLD, mesh.group(rank, {"ring"}).front(), rank, &ring_comm);
//
// Thread safety: a Mesh does not change once it is made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvring {

struct MeshAxis {
  std::string name;
  int size = 1;  // ranks along the axis
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

class Mesh {
 public:
  // Axes from the widest stride to the nearest ranks. Throws InvalidArgument unless there is an axis, every
  // axis has a name of its own and a size of 1 or more, and the ranks are at most 2^31 - 1.
  explicit Mesh(std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const noexcept { return axes_; }
  // The product of all sizes.
  int ranks() const noexcept { return ranks_; }
  // Of one axis. Throws InvalidArgument, naming the axes there are, for any other name.
  int size(std::string_view axis) const;

  // Where a rank stands: one coordinate per axis, from 0, in the order of axes(). Throws InvalidArgument
  // unless 0 <= rank < ranks().
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, std::string_view axis) const;
  // Who stands there, the inverse of coordinates(). Throws InvalidArgument unless there is one coordinate
  // per axis and each is at least 0 and below the axis' size.
  int rank(const std::vector<int>& coordinates) const;

  // The ranks that share all of `rank`'s coordinates but those along `along` (in any order, repeats allowed),
  // itself included, in rising order. Every member of a group gets the same group, and the groups along the
  // same axes cut the ranks into disjoint sets of equal size. Along no axis a rank is alone.
  std::vector<int> group(int rank, const std::vector<std::string_view>& along) const;

  friend bool operator==(const Mesh& a, const Mesh& b) { return a.axes_ == b.axes_; }

 private:
  std::size_t index(std::string_view axis) const;
  void check_rank(int rank) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;  // by axis: how far apart in rank its neighbours are
  int ranks_ = 1;
};

// The mesh that `text` ("dp=2,ring=4") asks for in a job of `ranks` ranks. Axes of `names` that it leaves out
// have size 1 and come first, which changes nobody's place.
//
// Throws InvalidArgument that says what would work, for text of another form, a name that is not in `names`
// or is there twice, a size below 1, and sizes whose product is not `ranks`.
Mesh parse_mesh(std::string_view text, int ranks,
                const std::vector<std::string>& names = {"dp", "pp", "tp", "ring"});

// "dp=2,pp=1,tp=1,ring=4": every axis, as parse_mesh reads it.
std::string mesh_text(const Mesh& mesh);

}  // namespace kvring
