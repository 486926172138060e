// Laws of the partial algebra, and order independence of the sum on raw state.
#include "kvring/partial.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernel/bins.h"
#include "kernel/scalar_math.h"

namespace kvring {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
bool same_sum(const BinnedSum& a, const BinnedSum& b) {
  return same_bits(a.hi, b.hi) && same_bits(a.lo, b.lo);
}

// Terms that stress ties, bin borders and cancellation.
double hard_term(std::mt19937_64& rng) {
  const int exponent = static_cast<int>(rng() % 180) - 90;
  const double sign = rng() & 1 ? 1.0 : -1.0;
  switch (rng() % 6) {
    case 0:
      return sign * std::ldexp(1.0, exponent);
    case 1:
      return sign * std::ldexp(3.0, exponent);
    case 2:
      return sign * std::ldexp(16777215.0, exponent - 24);
    case 3:
      return sign * std::ldexp(static_cast<double>(rng() % 16777216), exponent - 24);
    case 4:
      return sign * (std::ldexp(1.0, 32 * (static_cast<int>(rng() % 5) - 2) - 1));
    default:
      return 0.0;
  }
}

TEST(BinnedSum, RawStateDoesNotDependOnOrderOrGrouping) {
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<double> terms(2 + rng() % 40);
    for (double& t : terms) t = hard_term(rng);
    BinnedSum expected = BinnedSum::empty();
    for (double t : terms) expected.add(t);
    for (int shuffle = 0; shuffle < 5; ++shuffle) {
      std::shuffle(terms.begin(), terms.end(), rng);
      std::vector<BinnedSum> parts(1 + rng() % 4, BinnedSum::empty());
      for (double t : terms) parts[rng() % parts.size()].add(t);
      while (parts.size() > 1) {
        const std::size_t into = rng() % (parts.size() - 1);
        parts[into].merge(parts.back());
        parts.pop_back();
      }
      ASSERT_TRUE(same_sum(parts[0], expected)) << "trial " << trial;
    }
  }
}

// Each term loses at most half a unit of the bin below the top: 2^-32 of 2^32 of its own bin's span.
TEST(BinnedSum, TotalIsWithinItsBound) {
  std::mt19937_64 rng(2);
  for (int trial = 0; trial < 2000; ++trial) {
    BinnedSum sum = BinnedSum::empty();
    long double exact = 0;
    double largest = 0;
    const int terms = 1 + static_cast<int>(rng() % 50);
    for (int i = 0; i < terms; ++i) {
      const double t = hard_term(rng);
      sum.add(t);
      exact += t;
      largest = std::max(largest, std::fabs(t));
    }
    const double bound = terms * largest * 0x1p-32 + std::fabs(static_cast<double>(exact)) * 0x1p-52;
    EXPECT_LE(std::fabs(static_cast<double>(sum.total() - exact)), bound);
  }
}

TEST(BinnedSum, KeepsTermsDownToItsLowestBin) {
  BinnedSum sum = BinnedSum::empty();
  sum.add(0x1.8p-200);
  sum.add(0x1p-250);
  EXPECT_EQ(sum.total(), 0x1.8p-200 + 0x1p-250);
  sum.add(0x1p-258);  // below half a unit of the bin under the lowest
  EXPECT_EQ(sum.total(), 0x1.8p-200 + 0x1p-250);
}

TEST(BinnedSum, ScalingDownCommutesWithAdding) {
  std::mt19937_64 rng(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const double digits = 32.0 * static_cast<double>(rng() % 20);
    BinnedSum before = BinnedSum::empty();
    BinnedSum after = BinnedSum::empty();
    for (int i = 0; i < 20; ++i) {
      const double t = hard_term(rng);
      before.add(t);
      after.add(t * power_of_two(-static_cast<std::int64_t>(digits)));
    }
    before.scale_down(digits);
    ASSERT_TRUE(same_sum(before, after)) << "digits " << digits;
  }
}

TEST(BinnedSum, InfinitiesAndNanAreStickyInAnyOrder) {
  for (double special : {kInf, -kInf, std::nan("")}) {
    for (int position = 0; position < 4; ++position) {
      BinnedSum sum = BinnedSum::empty();
      for (int i = 0; i < 4; ++i) sum.add(i == position ? special : std::ldexp(1.0, 40 * i));
      sum.scale_down(64);
      sum.scale_down(1024);
      EXPECT_TRUE(std::isnan(special) ? std::isnan(sum.total()) : sum.total() == special);
    }
  }
  BinnedSum both = BinnedSum::empty();
  both.add(kInf);
  both.add(-kInf);
  EXPECT_TRUE(std::isnan(both.total()));
}

struct TilePartial {
  float m = 0;
  int shift = 0;
  float l = 0;
  std::vector<float> x;
};

TilePartial random_tile(std::mt19937_64& rng, std::size_t dims) {
  static constexpr float kRanges[] = {1.0f, 40.0f, 400.0f, 1e7f, 1e30f};
  TilePartial t;
  const float range = kRanges[rng() % 5];
  t.m = std::ceil(range * (static_cast<float>(rng() % 2001) / 1000.0f - 1.0f));
  t.shift = rng() % 8 == 0 ? 16 : 0;
  t.l = 0.5f + static_cast<float>(rng() % 1000) / 10.0f;
  for (std::size_t d = 0; d < dims; ++d) {
    t.x.push_back(static_cast<float>(hard_term(rng)) * (d % 2 ? 1.0f : 0x1p-20f));
  }
  return t;
}

bool same_state(const RowAccumulator& a, const RowAccumulator& b) {
  if (!same_bits(a.reference(), b.reference())) return false;
  return std::equal(a.sums().begin(), a.sums().end(), b.sums().begin(), same_sum);
}

RowAccumulator accumulate(const std::vector<TilePartial>& tiles, std::size_t dims) {
  RowAccumulator row(static_cast<std::int64_t>(dims));
  for (const TilePartial& t : tiles) row.add_tile(t.m, t.shift, t.l, t.x);
  return row;
}

RC_GTEST_PROP(PartialLaws, MergeIsCommutativeAndAssociativeAndEmptyIsNeutral, (std::uint64_t seed)) {
  std::mt19937_64 rng(seed);
  const std::size_t dims = 1 + rng() % 5;
  std::vector<RowAccumulator> parts;
  for (int i = 0; i < 3; ++i) {
    std::vector<TilePartial> tiles;
    for (std::size_t t = rng() % 4; t > 0; --t) tiles.push_back(random_tile(rng, dims));
    parts.push_back(accumulate(tiles, dims));
  }
  const auto merged = [](RowAccumulator a, const RowAccumulator& b) {
    a.merge(b);
    return a;
  };
  const RowAccumulator empty(static_cast<std::int64_t>(dims));
  RC_ASSERT(same_state(merged(parts[0], parts[1]), merged(parts[1], parts[0])));
  RC_ASSERT(
      same_state(merged(merged(parts[0], parts[1]), parts[2]), merged(parts[0], merged(parts[1], parts[2]))));
  RC_ASSERT(same_state(merged(parts[0], empty), parts[0]));
  RC_ASSERT(same_state(merged(empty, parts[0]), parts[0]));
  RC_ASSERT(same_state(merged(empty, empty), empty));
}

RC_GTEST_PROP(PartialLaws, TilesMayArriveInAnyOrder, (std::uint64_t seed)) {
  std::mt19937_64 rng(seed);
  const std::size_t dims = 1 + rng() % 4;
  std::vector<TilePartial> tiles;
  for (std::size_t t = 1 + rng() % 12; t > 0; --t) tiles.push_back(random_tile(rng, dims));
  const RowAccumulator expected = accumulate(tiles, dims);
  for (int i = 0; i < 4; ++i) {
    std::shuffle(tiles.begin(), tiles.end(), rng);
    RC_ASSERT(same_state(accumulate(tiles, dims), expected));
  }
}

// With tiles on both sides of 0 the reference was 0 or -0, whichever came first.
TEST(PartialLaws, ReferenceOfZeroHasOneSign) {
  const std::vector<float> x = {1.0f};
  RowAccumulator below(1), above(1);
  below.add_tile(-5.0f, 0, 1.0f, x);
  above.add_tile(0.0f, 0, 1.0f, x);
  EXPECT_FALSE(std::signbit(below.reference()));
  RowAccumulator other = above;
  other.merge(below);
  below.merge(above);
  EXPECT_TRUE(same_state(below, other));
}

TEST(PartialLaws, EmptyRowHasOutZeroAndLseMinusInfinityOrTheSink) {
  const RowAccumulator empty(3);
  std::vector<double> out(3, std::nan(""));
  EXPECT_EQ(empty.finish(out, kNone), kNone);
  EXPECT_EQ(out, std::vector<double>(3, 0.0));
  EXPECT_EQ(empty.finish(out, 2.5f), 2.5f);
  EXPECT_EQ(out, std::vector<double>(3, 0.0));
}

TEST(PartialLaws, SinkJoinsTheDenominatorOnce) {
  RowAccumulator row(1);
  const std::vector<float> x = {3.0f};
  row.add_tile(2.0f, 0, 1.0f, x);  // one key with logit 2 (log2 units), value 3
  std::vector<double> out(1);
  const float lse = row.finish(out, static_cast<float>(2.0 * kLn2));  // a sink of the same logit
  EXPECT_NEAR(out[0], 1.5, 1e-6);                                     // the sink is rounded to float32
  EXPECT_NEAR(lse, 3.0 * kLn2, 1e-6);
  EXPECT_EQ(row.finish(out, 1e30f), 1e30f);  // a sink that dwarfs the keys
  EXPECT_EQ(out[0], 0.0);
}

// merge overflows: old part contributes lse 0, new part lse 100 (and in the other order)
TEST(MergePair, LseZeroAgainstHundredDoesNotOverflow) {
  for (bool swapped : {false, true}) {
    std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    float lse_a = 0, lse_b = 100;
    if (swapped) std::swap(a, b), std::swap(lse_a, lse_b);
    merge_pair(a, lse_a, b, lse_b);
    EXPECT_FLOAT_EQ(lse_a, 100.0f);
    for (int d = 0; d < 4; ++d) EXPECT_FLOAT_EQ(a[d], 5.0f + static_cast<float>(d));
  }
}

TEST(MergePair, EmptyIsNeutralOnBothSidesAndWithItself) {
  std::vector<float> a = {1, 2}, zero = {0, 0};
  float lse = 3, none = kNone;
  merge_pair(a, lse, zero, kNone);
  EXPECT_EQ(lse, 3);
  EXPECT_EQ(a, (std::vector<float>{1, 2}));
  merge_pair(zero, none, a, lse);
  EXPECT_EQ(none, 3);
  EXPECT_EQ(zero, (std::vector<float>{1, 2}));
  std::vector<float> e1 = {0, 0}, e2 = {0, 0};
  float n1 = kNone;
  merge_pair(e1, n1, e2, kNone);
  EXPECT_EQ(n1, kNone);
  EXPECT_EQ(e1, (std::vector<float>{0, 0}));
}

RC_GTEST_PROP(MergePair, AgreesWithTheRawMergeToFloatRounding, (std::uint64_t seed)) {
  std::mt19937_64 rng(seed);
  std::vector<double> s(6), v(6);
  for (double& x : s) x = static_cast<double>(rng() % 2000) / 10.0 - 100.0;
  for (double& x : v) x = static_cast<double>(rng() % 2000) / 1000.0 - 1.0;
  const auto pair = [&](int from, int to) {
    double l = 0, o = 0;
    for (int i = from; i < to; ++i) l += std::exp(s[i]), o += std::exp(s[i]) * v[i];
    return std::pair(static_cast<float>(o / l), static_cast<float>(std::log(l)));
  };
  const auto [oa, la] = pair(0, 3);
  const auto [ob, lb] = pair(3, 6);
  const auto [oc, lc] = pair(0, 6);
  std::vector<float> a = {oa}, b = {ob};
  float lse = la;
  merge_pair(a, lse, b, lb);
  // Inputs rounded to float32: an LSE of 100 carries 4e-6, which moves weights by that share.
  RC_ASSERT(std::fabs(a[0] - oc) <= 2e-5f);
  RC_ASSERT(std::fabs(lse - lc) <= 2e-5f);
}

TEST(ScalarMath, AgreesWithLibm) {
  for (int i = -2000; i <= 2000; ++i) {
    const double x = i * 0.137;
    EXPECT_NEAR(exp2_f64(x) / std::exp2(x), 1.0, 0x1p-49) << x;
    const double y = std::exp2(x * 0.3) * 1.37;
    EXPECT_NEAR(log2_f64(y), std::log2(y), 0x1p-47 * std::max(1.0, std::fabs(std::log2(y)))) << y;
  }
  EXPECT_EQ(log2_f64(1.0), 0.0);
  EXPECT_EQ(exp2_f64(-kInf), 0.0);
  EXPECT_TRUE(std::isnan(exp2_f64(std::nan(""))));
}

}  // namespace
}  // namespace kvring
