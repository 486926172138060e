// The ring size must show neither in the error nor in the bits.
#include <algorithm>

#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

constexpr int kRingSizes[] = {1, 2, 4, 8, 16, 32, 64};

double largest_error(const Result& r, const std::vector<ReferenceRow>& rows) {
  double largest = 0;
  const ConstTensorView out = r.out.view();
  std::int64_t i = 0;
  for (const ReferenceRow& row : rows)
    for (double want : row.out)
      largest = std::max(largest, std::fabs(load_element(out.data, out.dtype, i++) - want));
  return largest;
}

// "error grows with the ring": equal bits have equal errors. Online sums, whose bits may differ, stay within
// their bound, and that knows no ring size.
TEST(Faults, ErrorGrowsWithTheRing) {
  Rng rng(61);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Problem p = sequence(256, 4, true);
    p.q_dtype = p.kv_dtype = p.out_dtype = dtype;
    const Inputs in = random_inputs(rng, p);
    const std::vector<ReferenceRow> rows = reference_rows(p, in);
    const Result one = one_rank(p, in);
    expect_reference(p, in, one, describe(p));
    for (int ranks : kRingSizes) {
      const Result r = run_inproc(p, ring_of(ranks), in);
      EXPECT_TRUE(same_bits(r, one)) << ranks;
      EXPECT_EQ(largest_error(r, rows), largest_error(one, rows)) << ranks;
    }
    p.accumulation = Accumulation::kOnline;
    for (int ranks : kRingSizes) expect_reference(p, in, run_inproc(p, ring_of(ranks), in), describe(p));
  }
}

// "results differ between ring of 4 and ring of 8": N=4096, 8 heads, d=64, causal.
TEST(Faults, ResultsDifferBetweenRingOfFourAndRingOfEight) {
  Problem p = sequence(4096, 512, true);
  p.q_heads = p.kv_heads = 8;
  p.head_dim = p.value_dim = 64;
  Rng rng(62);
  const Inputs in = random_inputs(rng, p);
  const Result four = run_inproc(p, ring_of(4), in);
  const Result eight = run_inproc(p, ring_of(8), in);
  EXPECT_TRUE(four.report.bits_invariant && eight.report.bits_invariant);
  EXPECT_TRUE(same_bits(four, eight));
  expect_reference_rows(p, in, eight, telling_rows(rng, p.q_len, 10));
}

// "partial accumulators in bf16": within 1 bf16 ulp of the float64 result rounded to bf16, plus the bound.
TEST(Faults, PartialAccumulatorsInBf16) {
  Problem p = sequence(256, 4);
  p.q_dtype = p.kv_dtype = p.out_dtype = DType::kBF16;
  Rng rng(63);
  const Inputs in = random_inputs(rng, p);
  const std::vector<ReferenceRow> rows = reference_rows(p, in);
  const Result one = one_rank(p, in);
  const ConstTensorView out = one.out.view();
  Problem float_out = p;
  float_out.out_dtype = DType::kF32;
  std::int64_t i = 0;
  for (const ReferenceRow& row : rows) {
    for (std::int64_t d = 0; d < p.value_dim; ++d, ++i) {
      std::uint16_t rounded = 0;
      store_element(&rounded, DType::kBF16, 0, row.out[static_cast<std::size_t>(d)]);
      const double want = bf16_to_float(rounded);
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 7);  // 8 bits of precision
      ASSERT_NEAR(load_element(out.data, DType::kBF16, i), want, ulp + out_bound(float_out, row, d));
    }
  }
  for (int ranks = 1; ranks <= 64; ranks += ranks < 9 ? 1 : 11)
    EXPECT_TRUE(same_bits(run_inproc(p, ring_of(ranks), in), one)) << ranks;
  EXPECT_TRUE(same_bits(run_inproc(p, ring_of(64), in), one));
}

}  // namespace
}  // namespace kvring::test
