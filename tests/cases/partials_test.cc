// Merging partial results, and the logsumexp that goes with them.
#include <array>
#include <numbers>

#include "kvring/partial.h"
#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

using Row = std::array<float, 4>;

// "merge overflows: old part contributes lse 0, new part lse 100 (and in the other order)"
TEST(Faults, MergeOverflowsAtLseZeroAndHundred) {
  const Row old_out{1, -2, 3, 0.5}, new_out{-1, 4, 0.25, 8};
  for (const bool old_first : {true, false}) {
    Row a = old_first ? old_out : new_out;
    float lse = old_first ? 0.0f : 100.0f;
    merge_pair(a, lse, old_first ? new_out : old_out, old_first ? 100.0f : 0.0f);
    const double weight = std::exp(-100.0);  // of the part with lse 0 beside the other
    for (std::size_t d = 0; d < a.size(); ++d) {
      const double want = (old_out[d] * weight + new_out[d]) / (1 + weight);
      EXPECT_NEAR(a[d], want, std::fabs(want) * 0x1p-24);
    }
    EXPECT_NEAR(lse, 100 + std::log1p(weight), 100 * 0x1p-24);
  }
}

// The same in the raw state, through which rings really merge: an exponential of 144 has no float32.
TEST(Faults, MergeOverflowsInRawState) {
  const Row old_out{1, -2, 3, 0.5}, new_out{-1, 4, 0.25, 8};
  RowAccumulator old_part(4), new_part(4);
  old_part.add_tile(0, 0, 1, old_out);
  new_part.add_tile(144, 0, 1, new_out);
  for (const bool old_first : {true, false}) {
    RowAccumulator merged = old_first ? old_part : new_part;
    merged.merge(old_first ? new_part : old_part);
    std::array<double, 4> out{};
    const float lse = merged.finish(out, kNoKey);
    const double weight = std::exp2(-144);
    for (std::size_t d = 0; d < out.size(); ++d) {
      const double want = (old_out[d] * weight + new_out[d]) / (1 + weight);
      EXPECT_NEAR(out[d], want, std::fabs(want) * 0x1p-30);
    }
    EXPECT_NEAR(lse, 144 * std::numbers::ln2, 100 * 0x1p-24);
  }
}

// "natural and base-2 LSE mixed": equal logits of ln 8 over 4 keys have a logsumexp of ln 32, which in base 2
// would be 5.
TEST(Faults, NaturalAndBaseTwoLseMixed) {
  Problem p = sequence(4, 2);
  p.q_heads = p.kv_heads = 1;
  p.head_dim = 1;
  p.softmax_scale = 1;
  OwnedTensor q(DType::kF32, {1, 4, 1, 1}), k = q, v(DType::kF32, {1, 4, 1, 8});
  for (std::int64_t s = 0; s < 4; ++s) {
    store_element(q.view().data, DType::kF32, s, 1);
    store_element(k.view().data, DType::kF32, s, std::log(8.0));
    for (std::int64_t d = 0; d < 8; ++d) store_element(v.view().data, DType::kF32, 8 * s + d, 1);
  }
  const Inputs in{q, k, v, {}};
  for (Accumulation accumulation : {Accumulation::kReproducible, Accumulation::kOnline}) {
    p.accumulation = accumulation;
    for (int ranks : {1, 2}) {
      const Result r = run_inproc(p, ring_of(ranks), in);
      for (std::int64_t s = 0; s < 4; ++s) EXPECT_NEAR(lse_at(r, 0, 0, s), std::log(32.0), 8 * 0x1p-23);
    }
  }
}

// "LSE left zero or uninitialised on some path": outputs start as NaN, and LSE is checked wherever O is.
TEST(Faults, LseLeftUninitialisedOnSomePath) {
  Rng rng(51);
  for (MaskKind mask : kMasks) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Problem p = matrix_problem(rng, mask, dtype);
      for (Accumulation accumulation : {Accumulation::kReproducible, Accumulation::kOnline}) {
        p.accumulation = accumulation;
        const Inputs in = random_inputs(rng, p);
        for (LayoutKind layout : kLayouts)
          expect_reference(p, in, run_inproc(p, ring_of(3, layout), in), describe(p));
      }
    }
  }
}

// "a row that sees no key gets lse +inf, or a large negative number, or NaN"
TEST(Faults, RowThatSeesNoKeyGetsAnInfiniteOrNanLse) {
  Problem no_keys = cross(7, 0, 2);
  Problem more_queries_than_keys = cross(9, 4, 2, true);  // the first 5 queries stand before the first key
  Problem window = cross(9, 4, 2);
  window.window_left = window.window_right = 0;
  Problem empty_document = documents({3, 4}, 2);
  empty_document.cu_seqlens_kv = {0, 0, 4};
  empty_document.kv_len = 4;
  Rng rng(52);
  for (Problem p : {no_keys, more_queries_than_keys, window, empty_document}) {
    expect_mask(p);
    for (bool sinks : {false, true}) {
      p.has_sinks = sinks;
      const Inputs in = random_inputs(rng, p);
      int blind_rows = 0;
      for (int ranks : {1, 2, 3, 8}) {
        const Result r = run_inproc(p, ring_of(ranks), in);
        expect_reference(p, in, r, describe(p));
        const ConstTensorView out = r.out.view();
        for (std::int64_t s = 0; s < p.q_len; ++s) {
          for (std::int64_t h = 0; h < p.q_heads; ++h) {
            const float none = sinks ? in.sinks[static_cast<std::size_t>(h)] : kNoKey;
            if (lse_at(r, 0, h, s) != none) continue;
            ++blind_rows;
            for (std::int64_t d = 0; d < p.value_dim; ++d)
              EXPECT_EQ(load_element(out.data, out.dtype, out.offset(0, s, h) + d), 0);
          }
        }
      }
      EXPECT_GE(blind_rows, 4 * 3 * p.q_heads) << describe(p);
    }
  }
}

}  // namespace
}  // namespace kvring::test
