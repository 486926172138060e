#include "kvring/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>

#include "kvring/error.h"

namespace kvring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"dp", "pp", "tp", "ring"};

// What the call refuses, "" when it does not.
template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

// Up to 4 axes of up to 4, in any order.
Mesh any_mesh() {
  std::vector<std::string> names = kNames;
  for (std::size_t i = names.size(); i-- > 1;)
    std::swap(names[i], names[static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(i) + 1))]);
  names.resize(static_cast<std::size_t>(*rc::gen::inRange(1, 5)));
  std::vector<MeshAxis> axes;
  for (const std::string& name : names) axes.push_back({name, *rc::gen::inRange(1, 5)});
  return Mesh(axes);
}

// Some of the mesh's axes, and the others.
struct AxisChoice {
  std::vector<std::string_view> along, rest;
};
AxisChoice any_axes(const Mesh& mesh) {
  AxisChoice choice;
  for (const MeshAxis& axis : mesh.axes())
    (*rc::gen::arbitrary<bool>() ? choice.along : choice.rest).push_back(axis.name);
  return choice;
}

TEST(Mesh, TheLastAxisRunsOverTheNearestRanks) {
  const Mesh mesh = parse_mesh("dp=2,pp=2,tp=2,ring=2", 16);
  EXPECT_THAT(mesh.coordinates(0), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(mesh.coordinates(1), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(mesh.coordinates(6), ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(mesh.coordinate(6, "tp"), 1);
  EXPECT_EQ(mesh.rank({1, 0, 1, 1}), 11);
  EXPECT_THAT(mesh.group(6, {"ring"}), ElementsAre(6, 7));
  EXPECT_THAT(mesh.group(6, {"tp"}), ElementsAre(4, 6));
  EXPECT_THAT(mesh.group(6, {"pp"}), ElementsAre(2, 6));
  EXPECT_THAT(mesh.group(6, {"dp"}), ElementsAre(6, 14));
  EXPECT_THAT(mesh.group(6, {"ring", "dp"}), ElementsAre(6, 7, 14, 15));
  EXPECT_THAT(mesh.group(6, {}), ElementsAre(6));
}

TEST(Mesh, AxesLeftOutHaveOneRank) {
  const Mesh mesh = parse_mesh("tp=2,ring=3", 6);
  EXPECT_EQ(mesh.size("dp"), 1);
  EXPECT_EQ(mesh.size("ring"), 3);
  EXPECT_EQ(mesh_text(mesh), "dp=1,pp=1,tp=2,ring=3");
  EXPECT_THAT(mesh.group(4, {"dp", "pp"}), ElementsAre(4));
}

RC_GTEST_PROP(MeshProperty, CoordinatesCountUpLikeDigits, ()) {
  const Mesh mesh = any_mesh();
  std::vector<int> expected(mesh.axes().size(), 0);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    RC_ASSERT(mesh.coordinates(rank) == expected);
    RC_ASSERT(mesh.rank(expected) == rank);
    for (std::size_t i = expected.size(); i-- > 0 && ++expected[i] == mesh.axes()[i].size;) expected[i] = 0;
  }
}

RC_GTEST_PROP(MeshProperty, GroupsCutTheRanksIntoSetsThatDifferInTheirAxesOnly, ()) {
  const Mesh mesh = any_mesh();
  std::vector<std::string_view> along = any_axes(mesh).along;
  if (!along.empty() && *rc::gen::arbitrary<bool>()) along.push_back(along.front());
  int size = 1;
  for (const MeshAxis& axis : mesh.axes())
    size *= std::find(along.begin(), along.end(), axis.name) != along.end() ? axis.size : 1;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int> group = mesh.group(rank, along);
    RC_ASSERT(static_cast<int>(group.size()) == size);
    RC_ASSERT(std::is_sorted(group.begin(), group.end()));
    RC_ASSERT(std::binary_search(group.begin(), group.end(), rank));
    for (const int member : group) {
      RC_ASSERT(mesh.group(member, along) == group);
      for (const MeshAxis& axis : mesh.axes()) {
        if (std::find(along.begin(), along.end(), axis.name) == along.end())
          RC_ASSERT(mesh.coordinate(member, axis.name) == mesh.coordinate(rank, axis.name));
      }
    }
  }
}

RC_GTEST_PROP(MeshProperty, GroupsAlongTheOtherAxesMeetInOneRank, ()) {
  const Mesh mesh = any_mesh();
  const auto [along, rest] = any_axes(mesh);
  const int a = *rc::gen::inRange(0, mesh.ranks()), b = *rc::gen::inRange(0, mesh.ranks());
  const std::vector<int> row = mesh.group(a, along), column = mesh.group(b, rest);
  std::vector<int> both;
  std::set_intersection(row.begin(), row.end(), column.begin(), column.end(), std::back_inserter(both));
  RC_ASSERT(both.size() == 1u);
}

RC_GTEST_PROP(MeshProperty, TextReadsBack, ()) {
  const Mesh mesh = any_mesh();
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  RC_ASSERT(parse_mesh(mesh_text(mesh), mesh.ranks(), names) == mesh);
}

RC_GTEST_PROP(MeshProperty, AnyTextIsAMeshOrATypedError, ()) {
  const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("dptring=,0123-+ \xff")));
  const int ranks = *rc::gen::inRange(0, 9);
  try {
    RC_ASSERT(parse_mesh(text, ranks).ranks() == ranks);
  } catch (const InvalidArgument& error) {
    RC_ASSERT(std::string(error.what()).size() > 20u);
  }
}

RC_GTEST_PROP(MeshProperty, TheMeshThatAMessageSuggestsWorks, ()) {
  const Mesh mesh = any_mesh();
  const int ranks = *rc::gen::inRange(1, 65);
  const std::string message = refusal([&] { parse_mesh(mesh_text(mesh), ranks); });
  RC_PRE(!message.empty());
  RC_ASSERT(message.find("start " + std::to_string(mesh.ranks())) != std::string::npos);
  if (const std::size_t at = message.find("use "); at != std::string::npos)
    RC_ASSERT(parse_mesh(message.substr(at + 4), ranks).ranks() == ranks);
}

TEST(MeshErrors, NameTheNumbersAndWhatWouldWork) {
  const auto said = [](std::string_view text, int ranks) {
    return refusal([&] { parse_mesh(text, ranks); });
  };
  EXPECT_EQ(said("dp=2,ring=3", 8),
            "mesh 'dp=2,ring=3' is for 6 ranks and there are 8; start 6, or use pp=1,tp=1,dp=2,ring=4");
  EXPECT_EQ(said("dp=2,ring=3", 7), "mesh 'dp=2,ring=3' is for 6 ranks and there are 7; start 6");
  EXPECT_EQ(said("dp=2,cp=2", 4),
            "mesh 'dp=2,cp=2' has no axis 'cp' to give a size; the axes are dp, pp, tp, ring, as in ring=2");
  EXPECT_EQ(said("tp=2,tp=2", 4), "mesh axis tp is there twice; name each axis once");
  for (const char* text : {"tp=0", "tp=-2", "tp=", "tp", "tp=2x", "tp=+2", "tp=99999999999"})
    EXPECT_THAT(said(text, 2), HasSubstr("tp must have a size from 1 to 2147483647, as in tp=2, not '"))
        << text;
  for (const char* text : {"", ",ring=2", "ring=2,", "ring=2,,tp=1", " ring=2", "ring2"})
    EXPECT_THAT(said(text, 2), HasSubstr("has no axis '")) << text;
  EXPECT_THAT(said("dp=65536,ring=65536", 4), HasSubstr("has more than 2147483647 ranks; use smaller sizes"));
  EXPECT_THAT(refusal([] { parse_mesh("x=2", 2, {}); }), HasSubstr("names of the axes"));
}

TEST(MeshErrors, OfAMeshPutTogetherByHand) {
  EXPECT_EQ(refusal([] { Mesh({{"ring", 0}}); }), "mesh axis ring is 0; it must be 1 or more");
  EXPECT_EQ(refusal([] { Mesh({}); }), "a mesh needs an axis, as in ring=4");
  EXPECT_THAT(refusal([] { Mesh({{"", 2}}); }), HasSubstr("no name"));
  EXPECT_THAT(refusal([] { Mesh({{"a", 2}, {"b", 1}, {"a", 1}}); }), HasSubstr("a is there twice"));
  const Mesh mesh({{"row", 2}, {"column", 3}});
  EXPECT_EQ(refusal([&] { mesh.size("ring"); }), "the mesh has no axis 'ring'; it has row, column");
  EXPECT_THAT(refusal([&] { mesh.group(0, {"tp"}); }), HasSubstr("it has row, column"));
  for (const int rank : {-1, 6})
    EXPECT_THAT(refusal([&] { mesh.coordinates(rank); }), HasSubstr("its ranks are 0 to 5"));
  EXPECT_EQ(refusal([&] { mesh.rank({1}); }),
            "1 coordinates for the mesh row=2,column=3; give 2, one for each axis");
  for (const int c : {-1, 3})
    EXPECT_THAT(refusal([&] { mesh.rank({1, c}); }), HasSubstr("along column is outside 0 to 2"));
}

}  // namespace
}  // namespace kvring
