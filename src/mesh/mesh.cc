#include "kvring/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "kvring/error.h"

namespace kvring {
namespace {

constexpr int kMostRanks = std::numeric_limits<int>::max();

std::string axis_names(const std::vector<MeshAxis>& axes) {
  std::vector<std::string_view> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_axis(const std::vector<MeshAxis>& axes, std::size_t i) {
  const std::string& name = axes[i].name;
  const int size = axes[i].size;
  if (name.empty()) throw InvalidArgument("a mesh axis has no name; name it, as in ring=4");
  if (std::any_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i),
                  [&](const MeshAxis& earlier) { return earlier.name == name; }))
    throw InvalidArgument(fmt::format("mesh axis {} is there twice; name each axis once", name));
  if (size < 1) throw InvalidArgument(fmt::format("mesh axis {} is {}; it must be 1 or more", name, size));
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)), strides_(axes_.size()) {
  if (axes_.empty()) throw InvalidArgument("a mesh needs an axis, as in ring=4");
  for (std::size_t i = 0; i < axes_.size(); ++i) check_axis(axes_, i);
  for (std::size_t i = axes_.size(); i-- > 0;) {
    strides_[i] = ranks_;
    const std::int64_t ranks = std::int64_t{ranks_} * axes_[i].size;
    if (ranks > kMostRanks)
      throw InvalidArgument(
          fmt::format("mesh {} has more than {} ranks; use smaller sizes", mesh_text(*this), kMostRanks));
    ranks_ = static_cast<int>(ranks);
  }
}

std::size_t Mesh::index(std::string_view axis) const {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  throw InvalidArgument(fmt::format("the mesh has no axis '{}'; it has {}", axis, axis_names(axes_)));
}

void Mesh::check_rank(int rank) const {
  if (rank < 0 || rank >= ranks_)
    throw InvalidArgument(fmt::format("rank {} is not in the mesh {}; its ranks are 0 to {}", rank,
                                      mesh_text(*this), ranks_ - 1));
}

int Mesh::size(std::string_view axis) const { return axes_[index(axis)].size; }

std::vector<int> Mesh::coordinates(int rank) const {
  check_rank(rank);
  std::vector<int> coordinates;
  for (std::size_t i = 0; i < axes_.size(); ++i) coordinates.push_back(rank / strides_[i] % axes_[i].size);
  return coordinates;
}

int Mesh::coordinate(int rank, std::string_view axis) const { return coordinates(rank)[index(axis)]; }

int Mesh::rank(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size())
    throw InvalidArgument(fmt::format("{} coordinates for the mesh {}; give {}, one for each axis",
                                      coordinates.size(), mesh_text(*this), axes_.size()));
  int rank = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size)
      throw InvalidArgument(fmt::format("coordinate {} along {} is outside 0 to {}", coordinates[i],
                                        axes_[i].name, axes_[i].size - 1));
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

std::vector<int> Mesh::group(int rank, const std::vector<std::string_view>& along) const {
  const std::vector<int> mine = coordinates(rank);
  std::vector<bool> varies(axes_.size());
  for (const std::string_view axis : along) varies[index(axis)] = true;
  // Grown from the widest axis to the nearest, so that ranks come out in rising order.
  std::vector<int> members = {0};
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    std::vector<int> grown;
    for (const int member : members) {
      const int first = varies[i] ? 0 : mine[i], last = varies[i] ? axes_[i].size - 1 : mine[i];
      for (int c = first; c <= last; ++c) grown.push_back(member + c * strides_[i]);
    }
    members = std::move(grown);
  }
  return members;
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return text;
}

}  // namespace kvring
