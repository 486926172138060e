#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "kvring/error.h"
#include "kvring/mesh.h"

namespace kvring {
namespace {

MeshAxis parse_axis(std::string_view word, std::string_view text, const std::vector<std::string>& names) {
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw InvalidArgument(
        fmt::format("mesh '{}' has no axis '{}' to give a size; the axes are {}, as in {}=2", text, name,
                    fmt::join(names, ", "), names.back()));
  int size = 0;
  const std::string_view digits = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (fault != std::errc{} || end != digits.data() + digits.size() || size < 1)
    throw InvalidArgument(fmt::format("mesh '{}': {} must have a size from 1 to {}, as in {}=2, not '{}'",
                                      text, name, std::numeric_limits<int>::max(), name, digits));
  return {std::string(name), size};
}

// The mesh with one size changed so that it has `ranks` ranks, nearest axis first; if there is one.
std::optional<Mesh> nearest_fit(const Mesh& mesh, int ranks) {
  for (std::size_t i = mesh.axes().size(); i-- > 0;) {
    std::vector<MeshAxis> axes = mesh.axes();
    const int others = mesh.ranks() / axes[i].size;
    if (ranks < 1 || ranks % others != 0) continue;
    axes[i].size = ranks / others;
    return Mesh(std::move(axes));
  }
  return std::nullopt;
}

}  // namespace

Mesh parse_mesh(std::string_view text, int ranks, const std::vector<std::string>& names) {
  if (names.empty()) throw InvalidArgument("parse_mesh needs the names of the axes there may be");
  std::vector<MeshAxis> named;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    named.push_back(parse_axis(text.substr(begin, end - begin), text, names));
    begin = end + 1;
  }
  std::vector<MeshAxis> axes;
  for (const std::string& name : names) {
    if (std::none_of(named.begin(), named.end(), [&](const MeshAxis& axis) { return axis.name == name; }))
      axes.push_back({name, 1});
  }
  axes.insert(axes.end(), named.begin(), named.end());
  Mesh mesh(std::move(axes));
  if (mesh.ranks() == ranks) return mesh;
  std::string way_out = fmt::format("start {}", mesh.ranks());
  if (const auto fit = nearest_fit(mesh, ranks)) way_out += ", or use " + mesh_text(*fit);
  throw InvalidArgument(
      fmt::format("mesh '{}' is for {} ranks and there are {}; {}", text, mesh.ranks(), ranks, way_out));
}

}  // namespace kvring
