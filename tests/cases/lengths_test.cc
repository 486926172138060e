// Lengths that divide by nothing, and shapes that other packages refuse.
#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

// "sequence length 7 over 2 ranks computed as 6"
TEST(Faults, SequenceOfSevenOverTwoRanksComputedAsSix) {
  Rng rng(71);
  for (std::int64_t tile : {1, 2, 512}) {
    const Problem p = sequence(7, tile, true);
    const Inputs in = random_inputs(rng, p);
    expect_reference_in_every_layout(p, in, 2);
  }
}

// "length that does not divide hangs"
TEST(Faults, LengthThatDoesNotDivideHangs) {
  Rng rng(72);
  const Problem small = sequence(7, 1);
  const Inputs few = random_inputs(rng, small);
  expect_reference_in_every_layout(small, few, 2);
  const Problem p = sequence(2999, 128, true);
  const Inputs in = random_inputs(rng, p);
  const std::vector<std::int64_t> rows = telling_rows(rng, p.q_len, 30);
  for (Cut cut : {Cut::kTiles, Cut::kTokens})
    expect_reference_rows(p, in, run_inproc(p, ring_of(4, LayoutKind::kZigzag, cut), in), rows);
}

// The tensors of one document alone.
Inputs slice(const Inputs& packed, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const OwnedTensor& t) {
    const ConstTensorView from = t.view();
    OwnedTensor part(from.dtype, {1, end - begin, from.shape[2], from.shape[3]});
    shard(from, Shard({{begin, end}}), part.view());
    return part;
  };
  return {cut(packed.q), cut(packed.k), cut(packed.v), {}};
}

// Every document within the bound of the reference of the document alone, and with its bits.
void expect_reference_per_document(const Problem& packed, int ranks, int random_rows) {
  expect_mask(packed);
  Rng rng(73);
  const Inputs in = random_inputs(rng, packed);
  const Result whole = run_inproc(packed, ring_of(ranks), in);
  for (std::size_t i = 1; i < packed.cu_seqlens_q.size(); ++i) {
    const std::int64_t begin = packed.cu_seqlens_q[i - 1], end = packed.cu_seqlens_q[i];
    Problem alone = packed;
    alone.q_len = alone.kv_len = end - begin;
    alone.cu_seqlens_q = alone.cu_seqlens_kv = {};
    const Inputs part = slice(in, begin, end);
    const Result r = run_inproc(alone, ring_of(2), part);
    OwnedTensor out(alone.out_dtype, {1, end - begin, alone.q_heads, alone.value_dim});
    shard(whole.out.view(), Shard({{begin, end}}), out.view());
    EXPECT_TRUE(out == r.out) << "document " << i - 1;
    if (random_rows == 0) {
      expect_reference(alone, part, r, describe(alone));
    } else {
      expect_reference_rows(alone, part, r, telling_rows(rng, end - begin, random_rows));
    }
  }
}

// "documents must each divide by the ring": 5, 3 and 9 tokens over 4 ranks.
TEST(Faults, DocumentsMustEachDivideByTheRing) {
  for (std::int64_t tile : {1, 2, 4}) expect_reference_per_document(documents({5, 3, 9}, tile, true), 4, 0);
}

// "arbitrary document lengths": 137, 2041 and 89 tokens over 8 ranks.
TEST(Faults, ArbitraryDocumentLengths) {
  expect_reference_per_document(documents({137, 2041, 89}, 64, true), 8, 10);
}

// "cross attention refused or silently made local": 6 queries and 10 keys over 2 ranks; and as many queries
// as keys without causal, which must see all keys.
TEST(Faults, CrossAttentionRefusedOrMadeLocal) {
  Rng rng(74);
  for (const Problem& p : {cross(6, 10, 2), cross(6, 10, 2, true), cross(10, 10, 2)}) {
    const Inputs in = random_inputs(rng, p);
    expect_reference_in_every_layout(p, in, 2);
  }
}

// "head dim 256; value dim other than key dim"
TEST(Faults, HeadDim256OrValueDimOtherThanKeyDim) {
  Rng rng(75);
  for (auto [dim, value_dim] : {std::pair(256, 256), {192, 128}}) {
    Problem p = sequence(40, 8, true);
    p.head_dim = dim;
    p.value_dim = value_dim;
    const Inputs in = random_inputs(rng, p);
    expect_reference(p, in, run_inproc(p, ring_of(3), in), describe(p));
  }
}

// "a rank whose rows are all masked yields NaN for everyone": ranks without a token, and ranks whose queries
// all stand before the first key.
TEST(Faults, RankWhoseRowsAreAllMaskedYieldsNanForEveryone) {
  Rng rng(76);
  Problem window = cross(12, 3, 1);
  window.window_left = window.window_right = 0;
  for (const Problem& p : {sequence(3, 1, true), sequence(2, 512), cross(12, 3, 1, true), window}) {
    const Inputs in = random_inputs(rng, p);
    expect_reference_in_every_layout(p, in, 4);
  }
}

// "a tile as long as the whole sequence refused"
TEST(Faults, TileAsLongAsTheSequenceRefused) {
  Rng rng(77);
  for (std::int64_t kv_len : {31, 32, 33}) {
    const Problem p = cross(kv_len, kv_len, 32, true);
    const Inputs in = random_inputs(rng, p);
    for (int ranks : {1, 2, 4}) expect_reference_in_every_layout(p, in, ranks);
  }
}

}  // namespace
}  // namespace kvring::test
