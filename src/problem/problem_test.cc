#include "kvring/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "kvring/error.h"

namespace kvring {
namespace {

using ::testing::HasSubstr;

Problem small() {
  Problem p;
  p.q_len = p.kv_len = 16;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.head_dim = p.value_dim = 8;
  return p;
}

// The message that validate() gives after `change`, or "" when the problem is valid.
std::string refusal(const std::function<void(Problem&)>& change) {
  Problem p = small();
  change(p);
  try {
    validate(p);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(Problem, ScaleDefaultsToInverseRootOfHeadDim) {
  Problem p = small();
  p.head_dim = 64;
  EXPECT_EQ(p.scale(), 0.125);
  p.softmax_scale = 0.0;
  EXPECT_EQ(p.scale(), 0.0);
}

TEST(Problem, AcceptsEdges) {
  EXPECT_EQ(refusal([](Problem&) {}), "");
  EXPECT_EQ(refusal([](Problem& p) { p.q_len = p.kv_len = 0; }), "");
  EXPECT_EQ(refusal([](Problem& p) { p.head_dim = 256, p.value_dim = 1, p.tile = 1; }), "");
  EXPECT_EQ(refusal([](Problem& p) { p.kv_heads = 1, p.tile = 32768, p.softmax_scale = -1.5; }), "");
  EXPECT_EQ(refusal([](Problem& p) {
              p.cu_seqlens_q = {0, 0, 16, 16};
              p.cu_seqlens_kv = {0, 5, 5, 16};
            }),
            "");
  // 2^31 elements and more are ordinary.
  EXPECT_EQ(refusal([](Problem& p) { p.q_len = p.kv_len = std::int64_t{1} << 28; }), "");
}

TEST(Problem, QueryHeadsNotAMultipleOfKvHeadsUnchecked) {
  const std::string message = refusal([](Problem& p) { p.q_heads = 3; });
  EXPECT_THAT(message, HasSubstr("q_heads is 3 and kv_heads is 2"));
  EXPECT_THAT(message, HasSubstr("such as 2 or 4"));
  EXPECT_THAT(refusal([](Problem& p) { p.q_heads = 1, p.kv_heads = 5; }), HasSubstr("such as 5"));
}

TEST(Problem, RefusesValuesOutOfRange) {
  EXPECT_THAT(refusal([](Problem& p) { p.batch = 0; }), HasSubstr("batch is 0"));
  EXPECT_THAT(refusal([](Problem& p) { p.q_len = -1; }), HasSubstr("q_len is -1"));
  EXPECT_THAT(refusal([](Problem& p) { p.kv_len = -7; }), HasSubstr("kv_len is -7"));
  EXPECT_THAT(refusal([](Problem& p) { p.q_heads = 0; }), HasSubstr("q_heads is 0"));
  EXPECT_THAT(refusal([](Problem& p) { p.kv_heads = 0; }), HasSubstr("kv_heads is 0"));
  EXPECT_THAT(refusal([](Problem& p) { p.head_dim = 257; }), HasSubstr("head_dim is 257"));
  EXPECT_THAT(refusal([](Problem& p) { p.value_dim = 0; }), HasSubstr("value_dim is 0"));
  EXPECT_THAT(refusal([](Problem& p) { p.tile = 0; }), HasSubstr("tile is 0"));
  EXPECT_THAT(refusal([](Problem& p) { p.tile = 32769; }), HasSubstr("tile is 32769"));
  EXPECT_THAT(refusal([](Problem& p) { p.window_left = -2; }), HasSubstr("window_left is -2"));
  EXPECT_THAT(refusal([](Problem& p) { p.window_right = -9; }), HasSubstr("window_right is -9"));
  EXPECT_THAT(refusal([](Problem& p) { p.softcap = -1; }), HasSubstr("softcap is -1"));
  EXPECT_THAT(refusal([](Problem& p) { p.softcap = std::nan(""); }), HasSubstr("softcap is nan"));
  EXPECT_THAT(refusal([](Problem& p) { p.softmax_scale = std::nan(""); }), HasSubstr("softmax_scale is nan"));
  EXPECT_THAT(refusal([](Problem& p) { p.softmax_scale = std::numeric_limits<double>::infinity(); }),
              HasSubstr("softmax_scale is inf"));
}

TEST(Problem, RefusesSizesThatWrap) {
  EXPECT_THAT(refusal([](Problem& p) { p.q_len = std::int64_t{1} << 61; }), HasSubstr("q of shape"));
  EXPECT_THAT(refusal([](Problem& p) { p.batch = std::int64_t{1} << 62; }), HasSubstr("q of shape"));
  EXPECT_THAT(refusal([](Problem& p) { p.kv_len = std::int64_t{1} << 60; }), HasSubstr("k of shape"));
}

TEST(Problem, RefusesTooManyTiles) {
  const std::int64_t most = std::int64_t{1} << 20;
  EXPECT_EQ(refusal([=](Problem& p) { p.tile = 2, p.kv_len = 2 * most; }), "");
  EXPECT_THAT(refusal([=](Problem& p) { p.tile = 2, p.kv_len = 2 * most + 1; }),
              HasSubstr("use a tile of at least 3"));
  // The limit is per document.
  EXPECT_EQ(refusal([=](Problem& p) {
              p.tile = 1, p.kv_len = 2 * most;
              p.cu_seqlens_q = {0, 16, 16};
              p.cu_seqlens_kv = {0, most, 2 * most};
            }),
            "");
}

TEST(Problem, RefusesBadDocuments) {
  const auto with = [](std::vector<std::int64_t> q, std::vector<std::int64_t> kv) {
    return refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_kv = kv; });
  };
  EXPECT_EQ(with({0, 4, 16}, {0, 16, 16}), "");
  EXPECT_THAT(with({0, 16}, {}), HasSubstr("cu_seqlens_q is given without cu_seqlens_kv"));
  EXPECT_THAT(with({}, {0, 16}), HasSubstr("cu_seqlens_kv is given without cu_seqlens_q"));
  EXPECT_THAT(with({0}, {0, 16}), HasSubstr("cu_seqlens_q has 1 entry"));
  EXPECT_THAT(with({1, 16}, {0, 16}), HasSubstr("cu_seqlens_q starts at 1"));
  EXPECT_THAT(with({0, 16}, {0, 9, 8, 16}), HasSubstr("cu_seqlens_kv falls from 9 to 8 at entry 2"));
  EXPECT_THAT(with({0, 15}, {0, 16}),
              HasSubstr("cu_seqlens_q ends at 15; it must end at q_len, which is 16"));
  EXPECT_THAT(with({0, 16}, {0, 8, 16}), HasSubstr("cu_seqlens_q has 2 entries and cu_seqlens_kv has 3"));
  EXPECT_THAT(refusal([](Problem& p) {
                p.batch = 2;
                p.cu_seqlens_q = p.cu_seqlens_kv = {0, 16};
              }),
              HasSubstr("batch is 2 with packed documents"));
}

// A change to any member shows in exactly one field and in the digest.
TEST(Problem, RanksThatDisagreeOnAFieldCanNameIt) {
  const std::vector<std::pair<std::string, std::function<void(Problem&)>>> changes = {
      {"batch", [](Problem& p) { p.batch = 2; }},
      {"q_len", [](Problem& p) { p.q_len = 17; }},
      {"kv_len", [](Problem& p) { p.kv_len = 17; }},
      {"q_heads", [](Problem& p) { p.q_heads = 8; }},
      {"kv_heads", [](Problem& p) { p.kv_heads = 4; }},
      {"value_dim", [](Problem& p) { p.value_dim = 9; }},
      {"q_dtype", [](Problem& p) { p.q_dtype = DType::kF16; }},
      {"kv_dtype", [](Problem& p) { p.kv_dtype = DType::kBF16; }},
      {"out_dtype", [](Problem& p) { p.out_dtype = DType::kBF16; }},
      {"softmax_scale", [](Problem& p) { p.softmax_scale = std::nextafter(p.scale(), 1.0); }},
      {"softcap", [](Problem& p) { p.softcap = 1e-300; }},
      {"causal", [](Problem& p) { p.causal = true; }},
      {"window_left", [](Problem& p) { p.window_left = 0; }},
      {"window_right", [](Problem& p) { p.window_right = 3; }},
      {"cu_seqlens_q",
       [](Problem& p) {
         p.cu_seqlens_q = {0, 16};
       }},
      {"cu_seqlens_kv",
       [](Problem& p) {
         p.cu_seqlens_kv = {0, 16};
       }},
      {"sinks", [](Problem& p) { p.has_sinks = true; }},
      {"tile", [](Problem& p) { p.tile = 4; }},
      {"accumulation", [](Problem& p) { p.accumulation = Accumulation::kOnline; }},
  };
  const auto before = problem_fields(small());
  std::set<std::uint64_t> digests = {problem_digest(small())};
  for (const auto& [name, change] : changes) {
    Problem p = small();
    change(p);
    const auto after = problem_fields(p);
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_EQ(after[i].name, before[i].name);
      EXPECT_EQ(after[i].value != before[i].value, after[i].name == name) << after[i].name << " in " << name;
    }
    EXPECT_TRUE(digests.insert(problem_digest(p)).second) << name;
  }
  // head_dim, unless the scale is given, changes the scale too.
  Problem p = small();
  p.head_dim = 9;
  EXPECT_TRUE(digests.insert(problem_digest(p)).second);
}

TEST(Problem, SameMeaningHasSameFields) {
  Problem p = small();
  p.softmax_scale = p.scale();
  p.softcap = -0.0;
  EXPECT_EQ(problem_digest(p), problem_digest(small()));
}

}  // namespace
}  // namespace kvring
