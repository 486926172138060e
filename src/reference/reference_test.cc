#include "reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kvring/error.h"
#include "tests/support/random_problem.h"

namespace kvring {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One head, head_dim 1, scale 1: with q = 1 the logits are the keys themselves.
struct Tiny {
  Problem p;
  std::vector<float> q, k, v;
  std::vector<float> sinks;

  Tiny(std::vector<float> keys, std::vector<float> values, std::int64_t q_len = 1)
      : q(static_cast<std::size_t>(q_len), 1.0f), k(std::move(keys)), v(std::move(values)) {
    p.q_len = q_len;
    p.kv_len = std::ssize(k);
    p.head_dim = 1;
    p.value_dim = k.empty() ? 1 : std::ssize(v) / std::ssize(k);
    p.softmax_scale = 1.0;
  }
  ReferenceRow row(std::int64_t s = 0) {
    p.has_sinks = !sinks.empty();
    return reference_row(p, dense_view<const void>(q.data(), DType::kF32, {1, p.q_len, 1, 1}),
                         dense_view<const void>(k.data(), DType::kF32, {1, p.kv_len, 1, 1}),
                         dense_view<const void>(v.data(), DType::kF32, {1, p.kv_len, 1, p.value_dim}),
                         sinks.empty() ? nullptr : sinks.data(), 0, s, 0);
  }
};

auto near(double x) { return DoubleNear(x, 1e-14 * (1 + std::fabs(x))); }
void expect_nan_row(const ReferenceRow& row) {
  for (double x : row.out) EXPECT_TRUE(std::isnan(x));
  EXPECT_TRUE(std::isnan(row.lse));
}

TEST(Reference, ByHand) {
  Tiny t({0, 1}, {2, -3, 4, 5});
  const double p0 = 1 / (1 + std::exp(1.0)), p1 = 1 - p0;
  const ReferenceRow row = t.row();
  EXPECT_THAT(row.out, ElementsAre(near(2 * p0 + 4 * p1), near(-3 * p0 + 5 * p1)));
  EXPECT_THAT(row.weighted_abs_v, ElementsAre(near(2 * p0 + 4 * p1), near(3 * p0 + 5 * p1)));
  EXPECT_THAT(row.max_abs_v, ElementsAre(4, 5));
  EXPECT_THAT(row.lse, near(std::log(1 + std::exp(1.0))));
  EXPECT_EQ(row.max_abs_logit, 1);
  EXPECT_EQ(row.max_abs_dot, 1);
}

// What cancels in the dot product still rounds.
TEST(Reference, MaxAbsDotAddsAbsoluteProducts) {
  Problem p;
  p.q_len = p.kv_len = p.value_dim = 1;
  p.head_dim = 2;
  p.softmax_scale = -0.5;
  const std::vector<float> q = {1, 1}, k = {3, -3}, v = {1};
  const ReferenceRow row =
      reference_row(p, dense_view<const void>(q.data(), DType::kF32, {1, 1, 1, 2}),
                    dense_view<const void>(k.data(), DType::kF32, {1, 1, 1, 2}),
                    dense_view<const void>(v.data(), DType::kF32, {1, 1, 1, 1}), nullptr, 0, 0, 0);
  EXPECT_EQ(row.max_abs_logit, 0);
  EXPECT_EQ(row.max_abs_dot, 3);
}

TEST(Reference, LseIsNaturalAndDoesNotOverflow) {
  Tiny t({1000, 1000, 1000}, {1, 1, 1});
  EXPECT_THAT(t.row().lse, near(1000 + std::log(3.0)));
  EXPECT_THAT(t.row().out, ElementsAre(near(1)));
}

TEST(Reference, ScaleAndSoftcap) {
  Tiny t({1, 3}, {1, 0});
  t.p.softmax_scale = -2.0;
  t.p.softcap = 5.0;
  const double a = 5 * std::tanh(-0.4), b = 5 * std::tanh(-1.2);
  EXPECT_THAT(t.row().lse, near(std::log(std::exp(a) + std::exp(b))));
  EXPECT_THAT(t.row().out, ElementsAre(near(1 / (1 + std::exp(b - a)))));
  EXPECT_THAT(t.row().max_abs_logit, near(-b));
  EXPECT_EQ(t.row().max_abs_dot, 6);
}

TEST(Reference, SinkJoinsTheDenominatorOnceAndIsNotCapped) {
  Tiny t({0}, {6});
  t.p.softcap = 1.0;
  t.sinks = {std::log(2.0f) + 2};
  const double sink = std::exp(static_cast<double>(t.sinks[0]));
  EXPECT_THAT(t.row().out, ElementsAre(near(6 / (1 + sink))));
  EXPECT_THAT(t.row().lse, near(std::log(1 + sink)));
  EXPECT_EQ(t.row().max_abs_dot, t.sinks[0]);
  t.sinks = {-kInf};  // never looked at
  EXPECT_THAT(t.row().out, ElementsAre(6));
  for (float bad : {kInf, kNaN}) {
    t.sinks = {bad};
    expect_nan_row(t.row());
  }
}

TEST(Reference, SinksMustBeGivenExactlyWhenTheProblemHasThem) {
  Tiny t({0}, {6});
  const auto view = dense_view<const void>(t.q.data(), DType::kF32, {1, 1, 1, 1});
  const float sink = 0;
  EXPECT_THROW(reference_row(t.p, view, view, view, &sink, 0, 0, 0), InvalidArgument);
  t.p.has_sinks = true;
  EXPECT_THROW(reference_row(t.p, view, view, view, nullptr, 0, 0, 0), InvalidArgument);
}

TEST(Reference, RowThatSeesNoKey) {
  Tiny t({}, {});
  EXPECT_THAT(t.row().out, ElementsAre(0));
  EXPECT_EQ(t.row().lse, -std::numeric_limits<double>::infinity());
  t.sinks = {1.5};
  EXPECT_THAT(t.row().out, ElementsAre(0));
  EXPECT_EQ(t.row().lse, 1.5);
  Tiny causal({kNaN}, {kNaN}, 2);
  causal.p.causal = true;  // bottom-right aligned: query 0 sees nothing
  EXPECT_THAT(causal.row(0).out, ElementsAre(0));
  EXPECT_EQ(causal.row(0).lse, -std::numeric_limits<double>::infinity());
}

TEST(Reference, NaNAndInfiniteLogits) {
  expect_nan_row(Tiny({0, kNaN}, {1, 1}).row());
  expect_nan_row(Tiny({0, kInf}, {1, 1}).row());
  expect_nan_row(Tiny({-kInf, -kInf}, {1, 1}).row());
  Tiny one({0, -kInf}, {1, 7});
  EXPECT_THAT(one.row().out, ElementsAre(1));
  EXPECT_EQ(one.row().lse, 0);
  EXPECT_EQ(one.row().max_abs_logit, 0);
  Tiny sink({-kInf}, {7});
  sink.sinks = {3};
  EXPECT_THAT(sink.row().out, ElementsAre(0));
  EXPECT_EQ(sink.row().lse, 3);
  Tiny capped({0, kInf}, {0, 1});  // softcap makes an infinite logit finite
  capped.p.softcap = 2;
  EXPECT_THAT(capped.row().lse, near(std::log(1 + std::exp(2.0))));
}

TEST(Reference, NaNAndInfiniteValues) {
  const auto out = [](std::vector<float> keys, std::vector<float> values) {
    return Tiny(std::move(keys), std::move(values)).row().out;
  };
  EXPECT_TRUE(std::isnan(out({0, 0}, {1, kNaN})[0]));
  EXPECT_EQ(out({0, -5000}, {1, kInf})[0], kInf);  // a weight below the smallest double
  EXPECT_EQ(out({0, -5000}, {1, -kInf})[0], -kInf);
  EXPECT_TRUE(std::isnan(out({0, -5000}, {kInf, -kInf})[0]));
  EXPECT_TRUE(std::isnan(out({0, -kInf}, {1, kInf})[0]));
  const auto row = Tiny({0, 0}, {1, 1, kNaN, 1}).row();  // other dims and the lse are whole
  EXPECT_TRUE(std::isnan(row.out[0]));
  EXPECT_EQ(row.out[1], 1);
  EXPECT_EQ(row.lse, std::log(2.0));
}

TEST(Reference, HiddenKeysAndValuesAreNeverRead) {
  Tiny t({1, 2, kNaN, kInf}, {1, 2, kNaN, kInf}, 4);
  t.p.causal = true;
  EXPECT_EQ(t.row(0).out[0], 1);
  EXPECT_THAT(t.row(1).out, ElementsAre(near((1 + 2 * std::exp(1.0)) / (1 + std::exp(1.0)))));
  expect_nan_row(t.row(2));
}

TEST(Reference, DocumentsAreAsIfAlone) {
  Tiny packed({kNaN, 3, 4}, {kNaN, 1, 2}, 3);
  packed.p.cu_seqlens_q = {0, 1, 3};
  packed.p.cu_seqlens_kv = {0, 1, 3};
  Tiny alone({3, 4}, {1, 2}, 2);
  for (bool causal : {false, true}) {
    packed.p.causal = alone.p.causal = causal;
    EXPECT_EQ(packed.row(2).out, alone.row(1).out);
    EXPECT_EQ(packed.row(1).lse, alone.row(0).lse);
  }
}

// Heads, batch entries and dtypes: each row equals the same row computed from tensors cut down to it.
TEST(Reference, ReadsTheHeadItBelongsTo) {
  test::Rng rng(7);
  Problem p;
  p.batch = 2;
  p.q_len = 3;
  p.kv_len = 5;
  p.q_heads = 6;
  p.kv_heads = 2;
  p.head_dim = 4;
  p.value_dim = 3;
  p.q_dtype = DType::kBF16;
  p.kv_dtype = DType::kF16;
  p.has_sinks = true;
  const test::Inputs in = test::random_inputs(rng, p);
  Problem one = p;
  one.batch = one.q_heads = one.kv_heads = one.q_len = 1;
  const auto cut = [](ConstTensorView t, std::int64_t b, std::int64_t s, std::int64_t h) {
    t.data = static_cast<const std::byte*>(t.data) + t.offset(b, s, h) * 2;
    return t;
  };
  const auto rows = test::reference_rows(p, in);
  for (std::int64_t b = 0, i = 0; b < 2; ++b)
    for (std::int64_t s = 0; s < 3; ++s)
      for (std::int64_t h = 0; h < 6; ++h, ++i) {
        const ReferenceRow& row = rows[static_cast<std::size_t>(i)];
        const ReferenceRow alone =
            reference_row(one, cut(in.q.view(), b, s, h), cut(in.k.view(), b, 0, h / 3),
                          cut(in.v.view(), b, 0, h / 3), in.sinks.data() + h, 0, 0, 0);
        EXPECT_EQ(row.out, alone.out);
        EXPECT_EQ(row.lse, alone.lse);
        EXPECT_EQ(row.max_abs_dot, alone.max_abs_dot);
      }
}

// Weights of one row sum to 1, so a constant v comes out as it went in.
TEST(Reference, WeightsSumToOne) {
  test::Rng rng(11);
  for (int i = 0; i < 50; ++i) {
    Problem p = test::random_masked_problem(rng, 30);
    test::Inputs in = test::random_inputs(rng, p, test::Fill::kAdversarial);
    for (std::int64_t e = 0; e < in.v.view().elements(); ++e)
      store_element(in.v.view().data, DType::kF32, e, -2.5);
    for (const ReferenceRow& row : test::reference_rows(p, in)) {
      if (std::isinf(row.lse)) continue;
      for (double x : row.out) EXPECT_THAT(x, DoubleNear(-2.5, 1e-13));
    }
  }
}

}  // namespace
}  // namespace kvring
