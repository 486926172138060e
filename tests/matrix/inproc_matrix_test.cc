// layouts x masks x dtypes x ring sizes in process: the reference within its bound, and the bits of one rank.
#include <cmath>

#include "tests/matrix/matrix.h"

namespace kvring::test {
namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 5, 7, 8};

class Matrix : public testing::TestWithParam<std::tuple<MaskKind, DType>> {};
INSTANTIATE_TEST_SUITE_P(Inproc, Matrix,
                         testing::Combine(testing::ValuesIn(kMasks),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)));

TEST_P(Matrix, EveryLayoutAndRingSizeGivesTheReferenceAndTheBitsOfOneRank) {
  const auto [mask, dtype] = GetParam();
  Rng rng(1000 + 10 * static_cast<std::uint64_t>(mask) + static_cast<std::uint64_t>(dtype));
  for (int trial = 0; trial < 6; ++trial) {
    const Problem p = matrix_problem(rng, mask, dtype);
    const Inputs in = random_inputs(rng, p, trial % 2 ? Fill::kAdversarial : Fill::kNormal);
    AttendOptions options;
    options.layout = {LayoutKind::kContiguous};
    options.ring.threads = 1;
    const Result one = run_inproc(p, options, in);
    expect_reference(p, in, one, describe(p));
    for (int ranks : kRanks) {
      for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
        options.ranks = ranks;
        options.layout = {layout};
        options.ring.threads = 1 + static_cast<int>(rng.between(0, 3));
        options.ring.heads_per_lap = rng.between(0, 3);
        const Result r = run_inproc(p, options, in);
        ASSERT_TRUE(r.report.bits_invariant);
        ASSERT_TRUE(same_bits(r, one)) << ranks << " ranks, " << layout_name(layout) << ": " << describe(p);
      }
    }
  }
}

TEST_P(Matrix, EveryScheduleGivesTheBitsOfOneRankAndSendsWhatIsPlanned) {
  const auto [mask, dtype] = GetParam();
  Rng rng(1500 + 10 * static_cast<std::uint64_t>(mask) + static_cast<std::uint64_t>(dtype));
  for (int ranks : {2, 3, 4, 8}) {
    const Problem p = shareable_problem(rng, mask, dtype, ranks);
    const Inputs in = random_inputs(rng, p, rng.chance(0.5) ? Fill::kAdversarial : Fill::kNormal);
    AttendOptions options;
    options.ring.threads = 1;
    const Result one = run_inproc(p, options, in);
    expect_reference(p, in, one, describe(p));
    options.ranks = ranks;
    for (ScheduleKind schedule : kSchedules) {
      options.layout = {static_cast<LayoutKind>(rng.between(0, 2))};
      options.ring.schedule = schedule;
      options.ring.threads = 1 + static_cast<int>(rng.between(0, 3));
      options.ring.heads_per_lap = shareable_lap(rng, p, schedule, ranks);
      const Result r = run_inproc(p, options, in);
      const std::string where = std::string(schedule_name(schedule)) + ", " + std::to_string(ranks) +
                                " ranks, " + layout_name(options.layout.kind) + ": " + describe(p);
      ASSERT_TRUE(r.report.bits_invariant);
      ASSERT_TRUE(same_bits(r, one)) << where;
      const Layouts layouts = make_layouts(options.layout, p, ranks);
      for (const RankReport& rank : r.report.per_rank)
        ASSERT_EQ(sent(rank), planned(p, layouts, options.ring, rank.rank)) << where;
    }
  }
}

TEST_P(Matrix, ShardsCutInsideTilesAndOnlineSumsAreExactWithinTheBound) {
  const auto [mask, dtype] = GetParam();
  Rng rng(2000 + 10 * static_cast<std::uint64_t>(mask) + static_cast<std::uint64_t>(dtype));
  for (int ranks : kRanks) {
    Problem p = matrix_problem(rng, mask, dtype);
    const Inputs in = random_inputs(rng, p);
    AttendOptions options;
    options.ranks = ranks;
    options.ring.threads = 1;
    for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
      options.layout = {layout, layout == LayoutKind::kStriped ? rng.between(1, 5) : 0, Cut::kTokens};
      p.accumulation = Accumulation::kReproducible;
      expect_reference(p, in, run_inproc(p, options, in), describe(p));
      p.accumulation = Accumulation::kOnline;
      const Result online = run_inproc(p, options, in);
      EXPECT_FALSE(online.report.bits_invariant);
      expect_reference(p, in, online, describe(p));
    }
  }
}

TEST(MatrixInproc, SixtyFourRanksGiveTheBitsOfOne) {
  Rng rng(3);
  Problem p = matrix_problem(rng, MaskKind::kCausal, DType::kBF16);
  p.q_len = p.kv_len = 301;
  p.tile = 2;
  const Inputs in = random_inputs(rng, p);
  AttendOptions options;
  options.ring.threads = 1;
  const Result one = run_inproc(p, options, in);
  expect_reference(p, in, one, describe(p));
  for (int ranks : {6, 9, 16, 33, 64}) {
    options.ranks = ranks;
    ASSERT_TRUE(same_bits(run_inproc(p, options, in), one)) << ranks;
  }
}

TEST(MatrixInproc, HeadDimsByName) {
  Rng rng(4);
  for (auto [dim, value_dim] : {std::pair(64, 64), {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Problem p = matrix_problem(rng, MaskKind::kCausal, dtype);
      p.head_dim = dim;
      p.value_dim = value_dim;
      p.q_len = p.kv_len = 50;
      p.batch = 1;
      const Inputs in = random_inputs(rng, p);
      AttendOptions options;
      options.ring.threads = 1;
      const Result one = run_inproc(p, options, in);
      expect_reference(p, in, one, describe(p));
      options.ranks = 3;
      ASSERT_TRUE(same_bits(run_inproc(p, options, in), one)) << describe(p);
    }
  }
}

// The bound is per dim, in terms of that dim's own sum of p |v|: a dim 2^-40 of its neighbour keeps all its
// digits.
TEST(MatrixInproc, DimsOfVScaledFarApartEachKeepTheirDigits) {
  Rng rng(6);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Problem p = matrix_problem(rng, MaskKind::kCausal, dtype);
    p.q_len = p.kv_len = 100;
    p.value_dim = 19;
    p.out_dtype = DType::kF32;  // so that rounding the output hides nothing
    const Inputs in = random_inputs(rng, p);
    const TensorView v = const_cast<OwnedTensor&>(in.v).view();
    for (std::int64_t i = 0; i < v.elements(); ++i) {
      const int exponent = i % p.value_dim % 3 == 0 ? -20 : i % p.value_dim % 3 == 1 ? 20 : 0;
      store_element(v.data, v.dtype, i, std::ldexp(load_element(v.data, v.dtype, i), exponent));
    }
    AttendOptions options;
    options.ring.threads = 1;
    const Result one = run_inproc(p, options, in);
    expect_reference(p, in, one, describe(p));
    options.ranks = 4;
    ASSERT_TRUE(same_bits(run_inproc(p, options, in), one)) << describe(p);
  }
}

// A document alone, packed with others, in one piece or token by token: the same bits.
TEST(MatrixInproc, PackedAloneOrTokenByTokenGivesTheSameBits) {
  Rng rng(5);
  Problem packed = matrix_problem(rng, MaskKind::kCausal, DType::kF32);
  packed.batch = 1;
  packed.has_sinks = false;
  packed.cu_seqlens_q = packed.cu_seqlens_kv = {0, 13, 44, 45, 80};
  packed.q_len = packed.kv_len = 80;
  packed.window_left = packed.window_right = -1;
  const Inputs in = random_inputs(rng, packed);
  AttendOptions options;
  options.ring.threads = 1;
  options.ranks = 3;
  const Result whole = run_inproc(packed, options, in);
  const auto rows = [](ConstTensorView t, std::int64_t begin, std::int64_t end) {
    t.data = static_cast<const char*>(t.data) + t.offset(0, begin, 0) * 4;
    t.shape[1] = end - begin;
    return t;
  };
  const auto run = [&](std::int64_t q_begin, std::int64_t q_end, std::int64_t kv_begin, int ranks) {
    Problem p = packed;
    p.cu_seqlens_q = p.cu_seqlens_kv = {};
    p.q_len = q_end - q_begin;
    p.kv_len = q_end - kv_begin;
    OwnedTensor out(DType::kF32, {1, p.q_len, p.q_heads, p.value_dim});
    AttendOptions o = options;
    o.ranks = ranks;
    p.out_dtype = DType::kF32;
    attend(p, o, rows(in.q.view(), q_begin, q_end), rows(in.k.view(), kv_begin, q_end),
           rows(in.v.view(), kv_begin, q_end), out.view());
    OwnedTensor expected(DType::kF32, {1, p.q_len, p.q_heads, p.value_dim});
    const ConstTensorView part = rows(static_cast<const Result&>(whole).out.view(), q_begin, q_end);
    shard(part, Shard({{0, p.q_len}}), expected.view());
    ASSERT_TRUE(out == expected) << q_begin << " to " << q_end;
  };
  ASSERT_EQ(packed.out_dtype, DType::kF32);
  for (std::size_t d = 0; d + 1 < packed.cu_seqlens_q.size(); ++d) {
    const std::int64_t begin = packed.cu_seqlens_q[d], end = packed.cu_seqlens_q[d + 1];
    run(begin, end, begin, 2);
    for (std::int64_t s = begin; s < end; ++s) run(s, s + 1, begin, 1 + static_cast<int>(s % 3));
  }
}

}  // namespace
}  // namespace kvring::test
