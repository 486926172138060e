// Ranks that were told different things must say so, all of them and at once.
#include <gmock/gmock.h>

#include "tests/ring/ring_support.h"

namespace kvring::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Told {
  Problem problem;
  LayoutSpec layout;
  RingOptions options;
};

// Rank 2 of 4 is told `odd`. All ranks must name the field, and rank 0 and rank 2 with their values.
void expect_disagreement(const Told& usual, const Told& odd, const std::string& field) {
  const Timer timer;
  const auto endings = on_ranks(4, [&](Transport& end) {
    const Told& mine = end.rank() == 2 ? odd : usual;
    Ring ring(mine.problem, make_layouts(mine.layout, mine.problem, 4), mine.options, end);
  });
  EXPECT_LT(timer.seconds(), kQuickly);
  for (const Ending& ending : endings) {
    EXPECT_TRUE(ending.failed && ending.typed);
    EXPECT_EQ(ending.code, ErrorCode::kTransport);
    EXPECT_THAT(ending.message, AllOf(HasSubstr("disagree on " + field + ":"), HasSubstr("rank 0 has"),
                                      HasSubstr("rank 2 has")));
  }
}

TEST(RingAgreement, EveryRankNamesTheFieldAndTwoRanks) {
  const Told usual{plain_problem(64, 8), {}, one_thread(1)};
  const auto with_problem = [&](const std::function<void(Problem&)>& change) {
    Told odd = usual;
    change(odd.problem);
    return odd;
  };
  Told layout = usual, heads = usual;
  layout.layout.kind = LayoutKind::kContiguous;
  heads.options.heads_per_lap = 2;
  expect_disagreement(usual, with_problem([](Problem& p) { p.q_len = 72; }), "q_len");
  expect_disagreement(usual, with_problem([](Problem& p) { p.kv_len = 72; }), "kv_len");
  expect_disagreement(usual, with_problem([](Problem& p) { p.q_dtype = DType::kBF16; }), "q_dtype");
  expect_disagreement(usual, with_problem([](Problem& p) { p.kv_dtype = DType::kF16; }), "kv_dtype");
  expect_disagreement(usual, with_problem([](Problem& p) { p.causal = true; }), "causal");
  expect_disagreement(usual, with_problem([](Problem& p) { p.window_left = 3; }), "window_left");
  expect_disagreement(usual, with_problem([](Problem& p) { p.softmax_scale = 0.5; }), "softmax_scale");
  expect_disagreement(usual, with_problem([](Problem& p) { p.tile = 16; }), "tile");
  expect_disagreement(usual, with_problem([](Problem& p) { p.accumulation = Accumulation::kOnline; }),
                      "accumulation");
  expect_disagreement(usual, layout, "layout of queries");
  expect_disagreement(usual, heads, "heads_per_lap");
}

// An empty list made "rank 0 has  and rank 2 has 0,64".
TEST(RingAgreement, ListThatIsNotThereIsCalledNone) {
  const Problem p = plain_problem(64, 8);
  const auto endings = on_ranks(2, [&](Transport& end) {
    Problem mine = p;
    if (end.rank() == 1) mine.cu_seqlens_q = mine.cu_seqlens_kv = {0, 64};
    Ring ring(mine, make_layouts({}, mine, 2), one_thread(), end);
  });
  EXPECT_THAT(endings[0].message, HasSubstr("disagree on cu_seqlens_q: rank 0 has none and rank 1 has 0,64"));
}

// One rank that cannot even plan: its own error there, TransportError that quotes it on the others.
TEST(RingAgreement, RankThatCannotPlanTellsTheOthers) {
  const Problem p = plain_problem(64, 8);
  const Timer timer;
  const auto endings = on_ranks(4, [&](Transport& end) {
    RingOptions options = one_thread();
    if (end.rank() == 1) options.heads_per_lap = -3;
    Ring ring(p, make_layouts({}, p, 4), options, end);
  });
  EXPECT_LT(timer.seconds(), kQuickly);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(endings[rank].code, rank == 1 ? ErrorCode::kInvalidArgument : ErrorCode::kTransport);
    EXPECT_THAT(endings[rank].message, HasSubstr("heads_per_lap is -3"));
    if (rank != 1) {
      EXPECT_THAT(endings[rank].message, HasSubstr("rank 1 failed"));
    }
  }
}

// Nothing was sent yet, so the transport is as good as new.
TEST(RingAgreement, TransportServesAnotherRingAfterADisagreement) {
  const Problem p = plain_problem(64, 8);
  Problem odd = p;
  odd.causal = true;
  Rng rng(221);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 3);
  Result result = empty_result(p);
  expect_no_failure(on_ranks(3, [&](Transport& end) {
    EXPECT_THROW(Ring(end.rank() == 2 ? odd : p, layouts, one_thread(), end), TransportError);
    Ring ring(p, layouts, one_thread(), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    local.collect(result);
  }));
  EXPECT_TRUE(same_bits(result, one_rank(p, in)));
}

TEST(RingAgreement, LayoutsOfAnotherRingSizeAreRefused) {
  const Problem p = plain_problem(64, 8);
  for (const Ending& ending :
       on_ranks(2, [&](Transport& end) { Ring ring(p, make_layouts({}, p, 3), {}, end); })) {
    EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ending.message, HasSubstr("over 3 ranks and the transport has 2"));
  }
}

// Layouts are plain data. One that loses or doubles a token would give plausible numbers.
TEST(RingAgreement, LayoutsPutTogetherByHandAreChecked) {
  const Problem p = plain_problem(16, 4);
  const Layouts good = make_layouts({LayoutKind::kContiguous}, p, 2);
  const auto message = [&](const std::vector<Shard>& kv_shards, bool tile_aligned) {
    Layouts layouts = good;
    layouts.kv.shards = kv_shards;
    layouts.kv.tile_aligned = tile_aligned;
    const auto endings = on_ranks(2, [&](Transport& end) { Ring ring(p, layouts, one_thread(), end); });
    EXPECT_EQ(endings[0].failed ? endings[0].code : ErrorCode::kInvalidArgument, ErrorCode::kInvalidArgument);
    return endings[0].message;
  };
  const Shard first({{0, 8}}), second({{8, 16}});
  EXPECT_EQ(message({first, second}, true), "");
  EXPECT_EQ(message({second, Shard({{4, 8}, {0, 4}})}, true), "");
  EXPECT_THAT(message({first, Shard({{9, 16}})}, true),
              HasSubstr("position 8 of the key layout is on no rank"));
  EXPECT_THAT(message({first, Shard({{8, 15}})}, true),
              HasSubstr("position 15 of the key layout is on no rank"));
  EXPECT_THAT(message({first, Shard({{7, 16}})}, true),
              HasSubstr("position 7 of the key layout is on two ranks"));
  EXPECT_THAT(message({first, Shard({{8, 17}})}, true),
              HasSubstr("position 16 of the key layout is on two ranks or outside"));
  EXPECT_THAT(message({Shard({{0, 7}}), Shard({{7, 16}})}, true),
              HasSubstr("cut at tiles of 4, and it is not"));
  EXPECT_EQ(message({Shard({{0, 7}}), Shard({{7, 16}})}, false), "");
}

TEST(RingAgreement, MoreRunsOfKeysThanCanBeSummedAreRefused) {
  Problem p = plain_problem(0, 4);
  p.q_len = 1;
  p.kv_len = (std::int64_t{1} << 20) + 1;
  std::vector<std::int64_t> falling(static_cast<std::size_t>(p.kv_len));
  for (std::int64_t i = 0; i < p.kv_len; ++i) falling[static_cast<std::size_t>(i)] = p.kv_len - 1 - i;
  const Layouts layouts{make_layout({}, 1, {}, p.tile, 1), custom_layout({falling}, p.kv_len, {}, p.tile)};
  const Ending ending = on_ranks(1, [&](Transport& end) { Ring ring(p, layouts, one_thread(), end); })[0];
  EXPECT_EQ(ending.code, ErrorCode::kUnsupported);
  EXPECT_THAT(ending.message, HasSubstr("1048577 runs"));
}

}  // namespace
}  // namespace kvring::test
