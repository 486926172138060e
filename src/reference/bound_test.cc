#include "reference/bound.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "mask/mask.h"
#include "tests/support/random_problem.h"

namespace kvring {
namespace {

constexpr float kLog2e = 1.44269504f;

struct FloatRow {
  std::vector<float> out;
  float lse;
};

// Attention as a float32 kernel may do it: chains within a tile, plain rescaling between tiles (which the
// online bound is about), base-2 exponents with an integer reference.
FloatRow float_row(const Problem& p, const test::Inputs& in, std::int64_t s, std::int64_t h) {
  const Range keys = Mask(p).visible(s);
  const std::int64_t kv_head = h / (p.q_heads / p.kv_heads);
  const ConstTensorView q = in.q.view(), k = in.k.view(), v = in.v.view();
  const auto scale = static_cast<float>(p.scale() * 1.4426950408889634);
  const auto cap = static_cast<float>(p.softcap);
  float top = in.sinks.empty() ? -INFINITY : std::ceil(in.sinks[static_cast<std::size_t>(h)] * kLog2e);
  float sum = in.sinks.empty() ? 0 : std::exp2(in.sinks[static_cast<std::size_t>(h)] * kLog2e - top);
  std::vector<float> acc(static_cast<std::size_t>(p.value_dim));
  for (std::int64_t begin = keys.begin; begin < keys.end; begin += p.tile) {
    const std::int64_t end = std::min(keys.end, begin + p.tile);
    std::vector<float> logits;
    for (std::int64_t key = begin; key < end; ++key) {
      float dot = 0;
      for (std::int64_t d = 0; d < p.head_dim; ++d)
        dot = std::fma(load_element(q.data, q.dtype, q.offset(0, s, h) + d),
                       load_element(k.data, k.dtype, k.offset(0, key, kv_head) + d), dot);
      float logit = dot * scale;
      if (cap > 0) logit = cap * kLog2e * std::tanh(logit / (cap * kLog2e));
      logits.push_back(logit);
    }
    const float tile_top = std::ceil(*std::max_element(logits.begin(), logits.end()));
    const float new_top = std::max(top, tile_top);
    const float old_factor = std::exp2(top - new_top), tile_factor = std::exp2(tile_top - new_top);
    std::vector<float> tile_acc(acc.size());
    float tile_sum = 0;
    for (std::int64_t key = begin; key < end; ++key) {
      const float weight = std::exp2(logits[static_cast<std::size_t>(key - begin)] - tile_top);
      tile_sum += weight;
      for (std::size_t d = 0; d < acc.size(); ++d)
        tile_acc[d] = std::fma(
            weight, load_element(v.data, v.dtype, v.offset(0, key, kv_head) + static_cast<std::int64_t>(d)),
            tile_acc[d]);
    }
    sum = sum * old_factor + tile_sum * tile_factor;
    for (std::size_t d = 0; d < acc.size(); ++d) acc[d] = acc[d] * old_factor + tile_acc[d] * tile_factor;
    top = new_top;
  }
  FloatRow row{acc, sum > 0 ? (top + std::log2(sum)) * 0.693147181f : -INFINITY};
  for (float& x : row.out) x = sum > 0 ? x / sum : 0.0f;
  return row;
}

Problem random_numbers(test::Rng& rng) {
  Problem p = test::random_masked_problem(rng, 40);
  const auto dtype = [&] { return static_cast<DType>(rng.between(0, 2)); };
  p.q_dtype = dtype();
  p.kv_dtype = dtype();
  p.out_dtype = dtype();
  p.kv_heads = rng.between(1, 2);
  p.q_heads = p.kv_heads * rng.between(1, 2);
  p.head_dim = rng.between(1, 40);
  if (rng.chance(0.3)) p.softcap = rng.uniform() * 30 + 0.1;
  if (rng.chance(0.3)) p.softmax_scale = rng.normal();
  p.has_sinks = rng.chance(0.3);
  p.accumulation = Accumulation::kOnline;
  return p;
}

RC_GTEST_PROP(Bound, HoldsForPlainFloat32, ()) {
  test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
  const Problem p = random_numbers(rng);
  RC_LOG() << test::describe(p);
  const test::Inputs in =
      test::random_inputs(rng, p, rng.chance(0.5) ? test::Fill::kNormal : test::Fill::kAdversarial);
  for (std::int64_t s = 0; s < p.q_len; ++s)
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      const ReferenceRow row =
          reference_row(p, in.q.view(), in.k.view(), in.v.view(), in.sinks_data(), 0, s, h);
      const FloatRow got = float_row(p, in, s, h);
      RC_ASSERT(matches(got.lse, row.lse, lse_bound(p, row)));
      for (std::int64_t d = 0; d < p.value_dim; ++d) {
        float stored = 0;  // large enough for any dtype
        store_element(&stored, p.out_dtype, 0, got.out[static_cast<std::size_t>(d)]);
        RC_ASSERT(std::isfinite(out_bound(p, row, d)));
        RC_ASSERT(matches(load_element(&stored, p.out_dtype, 0), row.out[static_cast<std::size_t>(d)],
                          out_bound(p, row, d)));
      }
    }
}

struct Case {
  Problem p;
  ReferenceRow row;
};

// Ordinary numbers: head_dim 64, a tile of 512, logits around 1.
Case ordinary() {
  Case c;
  c.p.q_len = 1;
  c.p.kv_len = 4096;
  c.p.head_dim = 64;
  c.p.value_dim = 1;
  c.row.out = {0.02};
  c.row.lse = 8.8;
  c.row.max_abs_logit = 4;
  c.row.max_abs_dot = 10;
  c.row.weighted_abs_v = {0.8};
  c.row.max_abs_v = {4};
  return c;
}

TEST(Bound, IsTightForOrdinaryNumbers) {
  const Case c = ordinary();
  EXPECT_LT(out_bound(c.p, c.row, 0), 2e-4);
  EXPECT_LT(lse_bound(c.p, c.row), 1e-4);
  EXPECT_GT(out_bound(c.p, c.row, 0), 512 * 0x1p-24);
}

TEST(Bound, GrowsWithWhatItIsStatedIn) {
  const Case c = ordinary();
  const double out = out_bound(c.p, c.row, 0), lse = lse_bound(c.p, c.row);
  Case d = c;
  d.row.max_abs_dot = 100;
  EXPECT_GT(out_bound(d.p, d.row, 0), out);
  EXPECT_GT(lse_bound(d.p, d.row), lse);
  d = c;
  d.row.weighted_abs_v = {1.6};
  EXPECT_NEAR(out_bound(d.p, d.row, 0), 2 * out, 0.01 * out);
  d = c;
  d.p.tile = 4096;
  EXPECT_GT(out_bound(d.p, d.row, 0), 3 * out);
  EXPECT_GT(lse_bound(d.p, d.row), 3 * lse);
  d = c;
  d.p.softcap = 50;
  EXPECT_GT(lse_bound(d.p, d.row), lse + 50 * 12 * 0x1p-24 - 1e-12);
  d = c;
  d.p.accumulation = Accumulation::kOnline;
  EXPECT_GT(out_bound(d.p, d.row, 0), out);
}

// 2^-9 is half a unit in the last place of bf16 at 1, 2^-12 of f16; below the normal range units stay.
TEST(Bound, AddsTheRoundingOfTheOutput) {
  Case c = ordinary();
  c.row.out = {1.0};
  const double f32 = out_bound(c.p, c.row, 0);
  c.p.out_dtype = DType::kBF16;
  EXPECT_NEAR(out_bound(c.p, c.row, 0), f32 + 0x1p-8, 1e-7);
  c.row.out = {0.99};
  EXPECT_NEAR(out_bound(c.p, c.row, 0), f32 + 0x1p-9, 1e-7);
  c.p.out_dtype = DType::kF16;
  EXPECT_NEAR(out_bound(c.p, c.row, 0), f32 + 0x1p-12, 1e-7);
  c.row.out = c.row.weighted_abs_v = c.row.max_abs_v = {0.0};
  EXPECT_NEAR(out_bound(c.p, c.row, 0), 0x1p-25, 1e-12);
  c.row.out = {65519};  // from 65520 on it rounds to infinity
  c.row.weighted_abs_v = c.row.max_abs_v = {65519};
  EXPECT_EQ(out_bound(c.p, c.row, 0), std::numeric_limits<double>::infinity());
}

// The largest values of the output's dtype stay finite as a mean, however large the error of the weights.
TEST(Bound, LargestValuesUnderHugeLogitsHaveABound) {
  Case c = ordinary();
  c.p.out_dtype = DType::kF16;
  c.row.max_abs_dot = 1e8;
  c.row.out = c.row.weighted_abs_v = c.row.max_abs_v = {65504};
  EXPECT_LT(out_bound(c.p, c.row, 0), 3 * 65504.0);
}

// Logits of 1e7 are off by more than a whole weight; the output is still a mean of values.
TEST(Bound, HugeLogitsLeaveAMeanOfValues) {
  Case c = ordinary();
  c.row.max_abs_dot = 1e8;
  EXPECT_GT(out_bound(c.p, c.row, 0), 8);
  EXPECT_LT(out_bound(c.p, c.row, 0), 8.01);
  EXPECT_NEAR(lse_bound(c.p, c.row), 67 * 0x1p-24 * 1e8, 1e-3);
}

TEST(Bound, OverflowAndNaN) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Case c = ordinary();
  c.row.max_abs_dot = 1e38;  // times sqrt(64) the sum itself is beyond float32
  EXPECT_EQ(out_bound(c.p, c.row, 0), inf);
  EXPECT_EQ(lse_bound(c.p, c.row), inf);
  c.p.softmax_scale = 1e6;  // now the sum is small and only the logit is not
  c.row.max_abs_dot = 3e38;
  EXPECT_EQ(out_bound(c.p, c.row, 0), inf);
  c = ordinary();
  c.p.softmax_scale = 1e39;  // itself beyond float32
  EXPECT_EQ(lse_bound(c.p, c.row), inf);
  c = ordinary();
  c.row.out = {nan};
  c.row.lse = -inf;
  EXPECT_EQ(out_bound(c.p, c.row, 0), 0);
  EXPECT_EQ(lse_bound(c.p, c.row), 0);
  EXPECT_TRUE(matches(nan, nan, 0));
  EXPECT_FALSE(matches(1, nan, 0));
  EXPECT_FALSE(matches(nan, 1, 1e9));
  EXPECT_TRUE(matches(-inf, -inf, 0));
  EXPECT_FALSE(matches(inf, -inf, 0));
  EXPECT_FALSE(matches(inf, 1, 1e9));
  EXPECT_TRUE(matches(nan, 1, inf));
  EXPECT_TRUE(matches(1.5, 1, 0.5));
  EXPECT_FALSE(matches(1.5, 1, 0.49));
}

}  // namespace
}  // namespace kvring
