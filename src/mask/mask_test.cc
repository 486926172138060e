#include "mask/mask.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "tests/support/random_problem.h"

namespace kvring {
namespace {

std::size_t document_of(const std::vector<std::int64_t>& cu_seqlens, std::int64_t position) {
  std::size_t document = 0;
  while (position >= cu_seqlens[document + 1]) ++document;
  return document;
}

// Whether q sees k, straight from the definitions, without intervals.
bool sees(const Problem& p, std::int64_t q, std::int64_t k) {
  std::int64_t q_length = p.q_len, kv_length = p.kv_len;
  if (!p.cu_seqlens_q.empty()) {
    const std::size_t i = document_of(p.cu_seqlens_q, q);
    if (i != document_of(p.cu_seqlens_kv, k)) return false;
    q -= p.cu_seqlens_q[i];
    k -= p.cu_seqlens_kv[i];
    q_length = p.cu_seqlens_q[i + 1] - p.cu_seqlens_q[i];
    kv_length = p.cu_seqlens_kv[i + 1] - p.cu_seqlens_kv[i];
  }
  const std::int64_t aligned = q + kv_length - q_length;
  if (p.causal && k > aligned) return false;
  if (p.window_left != -1 && k < aligned - p.window_left) return false;
  if (p.window_right != -1 && k > aligned + p.window_right) return false;
  return true;
}

bool inside(const Range& range, std::int64_t position) {
  return range.begin <= position && position < range.end;
}

Problem square(std::int64_t q_len, std::int64_t kv_len) {
  Problem p;
  p.q_len = q_len;
  p.kv_len = kv_len;
  return p;
}

RC_GTEST_PROP(Mask, VisibleIsTheDenseMask, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Problem p = test::random_masked_problem(rng, 20);
  RC_LOG() << test::describe(p);
  const Mask mask(p);
  for (std::int64_t q = 0; q < p.q_len; ++q) {
    const Range visible = mask.visible(q);
    RC_ASSERT(visible.begin <= visible.end && visible.begin >= 0 && visible.end <= p.kv_len);
    for (std::int64_t k = 0; k < p.kv_len; ++k) RC_ASSERT(inside(visible, k) == sees(p, q, k));
  }
}

RC_GTEST_PROP(Mask, UnionAndHullOfAnyRange, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Problem p = test::random_masked_problem(rng, 20);
  RC_LOG() << test::describe(p);
  const Mask mask(p);
  for (int i = 0; i < 10; ++i) {
    const std::int64_t begin = rng.between(0, p.q_len);
    const Range queries{begin, rng.between(begin, p.q_len)};
    Range hull{p.kv_len, 0};
    std::vector<Range> ranges;
    mask.append_visible(queries, ranges);
    std::int64_t end_before = 0;
    for (const Range& range : ranges) {
      RC_ASSERT(range.size() > 0 && range.begin >= end_before);
      end_before = range.end;
    }
    for (std::int64_t k = 0; k < p.kv_len; ++k) {
      bool seen = false;
      for (std::int64_t q = queries.begin; q < queries.end; ++q) seen = seen || sees(p, q, k);
      if (seen) hull = {std::min(hull.begin, k), k + 1};
      bool listed = false;
      for (const Range& range : ranges) listed = listed || inside(range, k);
      RC_ASSERT(listed == seen);
    }
    const Range claimed = mask.visible_hull(queries);
    if (hull.end == 0) {
      RC_ASSERT(claimed.size() == 0);
    } else {
      RC_ASSERT(claimed == hull);
    }
  }
}

TEST(Mask, CausalIsBottomRightAligned) {
  Problem p = square(2, 5);
  p.causal = true;
  EXPECT_EQ(Mask(p).visible(0), (Range{0, 4}));
  EXPECT_EQ(Mask(p).visible(1), (Range{0, 5}));
  p = square(5, 2);
  p.causal = true;
  EXPECT_EQ(Mask(p).visible(2).size(), 0);
  EXPECT_EQ(Mask(p).visible(3), (Range{0, 1}));
  EXPECT_EQ(Mask(p).visible_hull({0, 3}).size(), 0);
}

TEST(Mask, WindowLooksBothWaysAndIntersectsWithCausal) {
  Problem p = square(10, 10);
  p.window_left = 2;
  p.window_right = 1;
  EXPECT_EQ(Mask(p).visible(5), (Range{3, 7}));
  EXPECT_EQ(Mask(p).visible(9), (Range{7, 10}));
  p.causal = true;
  EXPECT_EQ(Mask(p).visible(5), (Range{3, 6}));
}

TEST(Mask, HugeWindowsDoNotOverflow) {
  Problem p = square(std::int64_t{1} << 40, std::int64_t{1} << 41);
  p.window_left = p.window_right = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(Mask(p).visible(0), (Range{0, p.kv_len}));
  p.window_left = p.kv_len - 1;
  p.window_right = p.q_len - 1;
  EXPECT_EQ(Mask(p).visible(0), (Range{0, p.kv_len}));
  EXPECT_EQ(Mask(p).visible(p.q_len - 1), (Range{0, p.kv_len}));
}

TEST(Mask, DocumentsDoNotLeakIntoEachOther) {
  Problem p = square(6, 8);
  p.cu_seqlens_q = {0, 2, 2, 4, 6};  // the second document has no query, the third no key
  p.cu_seqlens_kv = {0, 3, 5, 5, 8};
  const Mask mask(p);
  EXPECT_EQ(mask.visible(1), (Range{0, 3}));
  EXPECT_EQ(mask.visible(2).size(), 0);
  EXPECT_EQ(mask.visible(4), (Range{5, 8}));
  EXPECT_EQ(mask.visible_hull({0, 6}), (Range{0, 8}));
  EXPECT_EQ(mask.visible_hull({2, 6}), (Range{5, 8}));
  std::vector<Range> ranges;
  mask.append_visible({1, 6}, ranges);
  EXPECT_EQ(ranges, (std::vector<Range>{{0, 3}, {5, 8}}));
}

}  // namespace
}  // namespace kvring
