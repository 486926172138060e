// Masks that the ring must not forget.
#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

// "packed documents leak into each other": the reference is block-diagonal, and a NaN in one document stays
// there.
TEST(Faults, PackedDocumentsLeakIntoEachOther) {
  const Problem p = documents({11, 1, 24, 7, 16}, 4);
  Rng rng(81);
  Inputs in = random_inputs(rng, p);
  expect_reference_in_every_layout(p, in, 3);
  const Result clean = run_inproc(p, ring_of(3), in);
  const std::int64_t begin = p.cu_seqlens_kv[2], end = p.cu_seqlens_kv[3];
  for (const TensorView& t : {in.k.view(), in.v.view()}) {
    for (std::int64_t d = 0; d < t.shape[3]; ++d)
      store_element(t.data, t.dtype, t.offset(0, begin + 5, 0) + d, std::nan(""));
  }
  for (int ranks : {1, 2, 3, 8}) {
    const Result r = run_inproc(p, ring_of(ranks), in);
    const ConstTensorView out = r.out.view(), before = clean.out.view();
    for (std::int64_t s = 0; s < p.q_len; ++s) {
      for (std::int64_t h = 0; h < p.q_heads; ++h) {
        const bool poisoned = s >= begin && s < end && h < p.q_heads / p.kv_heads;
        EXPECT_EQ(std::isnan(lse_at(r, 0, h, s)), poisoned);
        for (std::int64_t d = 0; d < p.value_dim; ++d) {
          const std::int64_t i = out.offset(0, s, h) + d;
          const float got = load_element(out.data, out.dtype, i);
          EXPECT_TRUE(poisoned ? std::isnan(got) : got == load_element(before.data, before.dtype, i))
              << "row " << s << ", head " << h;
        }
      }
    }
  }
}

// "a sliding window silently ignored under context parallelism": window 128 left, causal, 4 ranks.
TEST(Faults, SlidingWindowSilentlyIgnored) {
  Problem p = sequence(1024, 64, true);
  p.window_left = 128;
  expect_mask(p);
  Rng rng(82);
  const Inputs in = random_inputs(rng, p);
  const Result windowed = run_inproc(p, ring_of(4), in);
  expect_reference_rows(p, in, windowed, telling_rows(rng, p.q_len, 40));
  Problem causal = p;
  causal.window_left = -1;
  const Result full = run_inproc(causal, ring_of(4), in);
  for (std::int64_t s : {0, 128, 129, 500, 1023})
    EXPECT_EQ(lse_at(windowed, 0, 0, s) == lse_at(full, 0, 0, s), s <= 128) << s;
}

// "window across hops": windows of half a shard, one and two shards.
TEST(Faults, WindowAcrossHops) {
  Rng rng(83);
  for (bool causal : {true, false}) {
    for (std::int64_t width : {16, 32, 64}) {  // a shard has 128 / 4 tokens
      Problem p = sequence(128, 8, causal);
      p.window_left = width;
      p.window_right = width / 2;
      const Inputs in = random_inputs(rng, p);
      expect_reference_in_every_layout(p, in, 4);
    }
  }
}

// "non-causal attention crashes in the balanced layout"
TEST(Faults, NonCausalAttentionCrashesInTheBalancedLayout) {
  const Problem p = sequence(61, 4);
  expect_mask(p);
  Rng rng(84);
  const Inputs in = random_inputs(rng, p);
  for (Cut cut : {Cut::kTiles, Cut::kTokens})
    expect_reference(p, in, run_inproc(p, ring_of(4, LayoutKind::kZigzag, cut), in), describe(p));
}

}  // namespace
}  // namespace kvring::test
