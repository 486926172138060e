// Layouts of the caller's own, tensors that are not dense, and sizes at the edge.
#include "tests/ring/ring_support.h"

namespace kvring::test {
namespace {

using Positions = std::vector<std::vector<std::int64_t>>;

// Deals out runs of `run` tokens to random ranks; the runs of a rank, and the tokens of a run where `mixed`,
// are in random order.
Positions deal(Rng& rng, std::int64_t tokens, std::int64_t run, int ranks, bool mixed) {
  const auto shuffle = [&rng](auto begin, auto end) {
    for (auto n = end - begin; n > 1; --n) std::swap(begin[n - 1], begin[rng.between(0, n - 1)]);
  };
  std::vector<std::int64_t> starts;
  for (std::int64_t p = 0; p < tokens; p += run) starts.push_back(p);
  shuffle(starts.begin(), starts.end());
  Positions positions(static_cast<std::size_t>(ranks));
  for (std::int64_t start : starts) {
    auto& mine = positions[static_cast<std::size_t>(rng.between(0, ranks - 1))];
    for (std::int64_t p = start; p < std::min(tokens, start + run); ++p) mine.push_back(p);
  }
  if (mixed)
    for (auto& mine : positions) shuffle(mine.begin(), mine.end());
  return positions;
}

Layouts own_layouts(const Problem& p, const Positions& q, const Positions& kv) {
  return {custom_layout(q, p.q_len, p.cu_seqlens_q, p.tile),
          custom_layout(kv, p.kv_len, p.cu_seqlens_kv, p.tile)};
}

TEST(RingShapes, TokensDealtOutAtRandomAreExact) {
  Rng rng(211);
  for (MaskKind mask : kMasks) {
    for (int ranks : {1, 3, 4}) {
      const Problem p = matrix_problem(rng, mask, DType::kF32);
      const Inputs in = random_inputs(rng, p);
      const Layouts layouts =
          own_layouts(p, deal(rng, p.q_len, 1, ranks, true), deal(rng, p.kv_len, 1, ranks, true));
      const Result r = run_ring(p, layouts, one_thread(), in);
      EXPECT_EQ(r.report.bits_invariant, layouts.kv.tile_aligned);
      expect_reference(p, in, r, describe(p));
    }
  }
}

TEST(RingShapes, WholeTilesDealtOutAtRandomGiveTheBitsOfOneRank) {
  Rng rng(212);
  for (int trial = 0; trial < 10; ++trial) {
    Problem p = matrix_problem(rng, trial % 2 ? MaskKind::kCausal : MaskKind::kWindow, DType::kBF16);
    const Inputs in = random_inputs(rng, p);
    const int ranks = 1 + trial % 5;
    // Queries may be anywhere: a row's bits depend on its keys' tiles alone.
    const Layouts layouts =
        own_layouts(p, deal(rng, p.q_len, 1, ranks, true), deal(rng, p.kv_len, p.tile, ranks, false));
    const Result r = run_ring(p, layouts, one_thread(), in);
    EXPECT_TRUE(r.report.bits_invariant);
    EXPECT_TRUE(same_bits(r, one_rank(p, in))) << describe(p);
  }
}

TEST(RingShapes, QueriesAndKeysMayHaveLayoutsOfDifferentKinds) {
  Rng rng(213);
  const Problem p = matrix_problem(rng, MaskKind::kCausal, DType::kF32);
  const Inputs in = random_inputs(rng, p);
  const Layouts zigzag = make_layouts({}, p, 4), striped = make_layouts({LayoutKind::kStriped}, p, 4);
  EXPECT_TRUE(same_bits(run_ring(p, {zigzag.q, striped.kv}, one_thread(), in), one_rank(p, in)));
}

// A tensor inside a larger one: gaps between batch entries, tokens and heads, or heads outside tokens.
class Strided {
 public:
  Strided(const OwnedTensor& dense, bool heads_outside)
      : view_(dense.view().data ? as_view(dense) : TensorView{}) {
    const std::int64_t head = view_.shape[3] + 3;
    const std::int64_t tokens = view_.shape[1], heads = view_.shape[2];
    view_.stride =
        heads_outside
            ? std::array<std::int64_t, 4>{heads * tokens * head + 7, head, tokens * head, 1}
            : std::array<std::int64_t, 4>{tokens * (heads * head + 5) + 7, heads * head + 5, head, 1};
    bytes_.assign(static_cast<std::size_t>(view_.shape[0] * view_.stride[0] + 1) * dtype_bytes(view_.dtype),
                  std::byte{0xff});
    view_.data = bytes_.data();
    copy(dense.view(), view_);
  }
  const TensorView& view() const { return view_; }
  bool holds(const OwnedTensor& dense) const {
    OwnedTensor mine(view_.dtype, view_.shape);
    copy(as_const(view_), mine.view());
    return mine == dense;
  }
  // What lies between the elements is still as it was.
  std::size_t poison_bytes() const {
    return static_cast<std::size_t>(std::count(bytes_.begin(), bytes_.end(), std::byte{0xff}));
  }

 private:
  static TensorView as_view(const OwnedTensor& t) { return const_cast<OwnedTensor&>(t).view(); }
  static void copy(const ConstTensorView& from, const TensorView& to) {
    if (from.shape[1] > 0) shard(from, Shard({{0, from.shape[1]}}), to);
  }
  std::vector<std::byte> bytes_;
  TensorView view_;
};

TEST(RingShapes, StridedInputsAndOutputsAsDenseOnes) {
  Rng rng(214);
  for (DType dtype : {DType::kF32, DType::kF16}) {
    for (bool heads_outside : {false, true}) {
      Problem p = matrix_problem(rng, MaskKind::kCausal, dtype);
      p.batch = 2;
      const Inputs in = random_inputs(rng, p);
      const Result dense = one_rank(p, in);
      const Strided q(in.q, heads_outside), k(in.k, !heads_outside), v(in.v, heads_outside);
      const OwnedTensor poison(p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim});
      for (int ranks : {1, 3}) {
        const Strided out(poison, !heads_outside);
        const std::size_t gaps = out.poison_bytes() - static_cast<std::size_t>(poison.view().elements()) *
                                                          dtype_bytes(p.out_dtype);
        std::vector<float> lse(static_cast<std::size_t>(p.batch * p.q_heads * p.q_len * 2), 7.0f);
        // (batch, seqlen, heads) in memory, every second float.
        const LseView lse_view{
            lse.data(), {p.batch, p.q_heads, p.q_len}, {2 * p.q_len * p.q_heads, 2, 2 * p.q_heads}};
        AttendOptions options;
        options.ranks = ranks;
        options.ring.threads = 1;
        attend(p, options, as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(), lse_view,
               in.sinks_data());
        EXPECT_TRUE(out.holds(dense.out)) << describe(p);
        EXPECT_GE(out.poison_bytes(), gaps);
        const ConstTensorView want = dense.lse.view();
        for (std::int64_t b = 0; b < p.batch; ++b)
          for (std::int64_t h = 0; h < p.q_heads; ++h)
            for (std::int64_t s = 0; s < p.q_len; ++s)
              ASSERT_EQ(lse[static_cast<std::size_t>(lse_view.offset(b, h, s))],
                        load_element(want.data, DType::kF32, want.offset(b, h, s)));
        for (std::size_t i = 1; i < lse.size(); i += 2) ASSERT_EQ(lse[i], 7.0f);
      }
    }
  }
}

// The same through a ring, whose rank reads its caller's tensors where they lie.
TEST(RingShapes, RingReadsAndWritesStridedTensorsInPlace) {
  Rng rng(215);
  Problem p = matrix_problem(rng, MaskKind::kFull, DType::kBF16);
  p.batch = 2;
  const Inputs in = random_inputs(rng, p);
  const Result dense = one_rank(p, in);
  for (bool heads_outside : {false, true}) {
    const Strided q(in.q, heads_outside), k(in.k, !heads_outside), v(in.v, heads_outside);
    const Strided out(OwnedTensor(p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim}), heads_outside);
    expect_no_failure(on_ranks(1, [&](Transport& end) {
      Ring ring(p, make_layouts({}, p, 1), one_thread(), end);
      ring.attend(as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(), {},
                  in.sinks_data());
    }));
    EXPECT_TRUE(out.holds(dense.out));
  }
}

TEST(RingShapes, LapsThatStraddleBatchEntries) {
  Rng rng(216);
  Problem p = matrix_problem(rng, MaskKind::kCausal, DType::kF32);
  p.batch = 3;
  p.kv_heads = 2;
  p.q_heads = 4;
  const Inputs in = random_inputs(rng, p);
  const Result one = one_rank(p, in);
  expect_reference(p, in, one, describe(p));
  for (std::int64_t heads_per_lap : {1, 2, 3, 4, 5, 6, 100}) {
    const Result r = run_ring(p, make_layouts({}, p, 3), one_thread(heads_per_lap), in);
    EXPECT_TRUE(same_bits(r, one)) << heads_per_lap;
  }
}

TEST(RingShapes, LengthsOfZeroAndOneAndRingsLongerThanTheSequence) {
  Rng rng(217);
  for (std::int64_t q_len : {0, 1, 5}) {
    for (std::int64_t kv_len : {0, 1, 5}) {
      for (bool causal : {false, true}) {
        Problem p = plain_problem(0, 2);
        p.q_len = q_len;
        p.kv_len = kv_len;
        p.causal = causal;
        const Inputs in = random_inputs(rng, p);
        const Result one = one_rank(p, in);
        expect_reference(p, in, one, describe(p));
        for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
          for (Cut cut : {Cut::kTiles, Cut::kTokens}) {
            const Result r = run_ring(p, make_layouts({layout, 0, cut}, p, 9), one_thread(), in);
            if (cut == Cut::kTiles) {
              EXPECT_TRUE(same_bits(r, one)) << describe(p);
            }
            expect_reference(p, in, r, describe(p));
          }
        }
      }
    }
  }
}

TEST(RingShapes, ThreadsChangeNoBit) {
  Rng rng(218);
  Problem p = matrix_problem(rng, MaskKind::kCausal, DType::kF32);
  p.q_len = p.kv_len = 700;  // several items of 192 rows per rank
  const Inputs in = random_inputs(rng, p);
  const Result one = one_rank(p, in);
  for (int threads : {1, 2, 3, 4}) {
    RingOptions options = one_thread();
    options.threads = threads;
    EXPECT_TRUE(same_bits(run_ring(p, make_layouts({}, p, 2), options, in), one)) << threads;
  }
}

}  // namespace
}  // namespace kvring::test
