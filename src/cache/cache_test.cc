#include "kvring/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kvring/error.h"
#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

using testing::HasSubstr;

Problem conversation(Rng& rng, DType dtype) {
  Problem p = matrix_problem(rng, MaskKind::kCausal, dtype);
  p.q_len = p.kv_len = rng.between(60, 120);
  p.kv_heads = 4;
  p.q_heads = 4 * rng.between(1, 2);
  p.batch = rng.between(1, 2);
  if (rng.chance(0.3)) p.window_left = rng.between(5, 60);
  return p;
}

OwnedTensor rows_of(const OwnedTensor& whole, const Shard& rows) {
  auto shape = whole.view().shape;
  shape[1] = rows.tokens();
  OwnedTensor local(whole.view().dtype, shape);
  shard(whole.view(), rows, local.view());
  return local;
}

Shard at(const Turn& turn) {
  std::vector<Range> ranges;
  for (const Range& r : turn.mine.ranges()) ranges.push_back({r.begin + turn.first, r.end + turn.first});
  return Shard(ranges);
}

// Runs the conversation in those turns, all layers with the same tensors, and collects the last layer's rows.
Result converse(Transports ends, const Problem& p, const Inputs& in, const std::vector<std::int64_t>& turns,
                CacheOptions options) {
  options.shape = p;
  options.capacity = p.kv_len;
  Result whole = empty_result(p);
  expect_no_failure(on_ranks(std::move(ends), [&](Transport& end) {
    KvCache cache(options, end);
    for (const std::int64_t tokens : turns) {
      const Turn& turn = cache.begin_turn(tokens);
      const Shard mine = at(turn);
      const OwnedTensor q = rows_of(in.q, mine), k = rows_of(in.k, mine), v = rows_of(in.v, mine);
      for (int layer = 0; layer < options.layers; ++layer) {
        OwnedTensor out(p.out_dtype, {p.batch, mine.tokens(), p.q_heads, p.value_dim});
        OwnedTensor lse(DType::kF32, {p.batch, p.q_heads, mine.tokens(), 1});
        out.poison();
        lse.poison();
        auto* data = static_cast<float*>(lse.view().data);
        cache.attend(layer, q.view(), k.view(), v.view(), out.view(),
                     dense_lse_view(data, {p.batch, p.q_heads, mine.tokens()}), in.sinks_data());
        unshard(as_const(out.view()), mine, whole.out.view());
        for (std::int64_t bh = 0; bh < p.batch * p.q_heads; ++bh)
          for (std::int64_t i = 0; i < mine.tokens(); ++i)
            static_cast<float*>(whole.lse.view().data)[bh * p.q_len + mine.position(i)] =
                data[bh * mine.tokens() + i];
      }
    }
  }));
  return whole;
}

std::vector<std::int64_t> random_turns(Rng& rng, std::int64_t tokens) {
  std::vector<std::int64_t> turns;
  for (std::int64_t left = tokens; left > 0; left -= turns.back())
    turns.push_back(std::min(left, rng.chance(0.5) ? rng.between(1, 3) : rng.between(1, tokens)));
  return turns;
}

class Cache : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Cache, testing::Values(DType::kF32, DType::kBF16, DType::kF16));

TEST_P(Cache, APrefillInOnePieceInChunksOrTokenByTokenGivesTheBitsOfOneRank) {
  Rng rng(7000 + static_cast<std::uint64_t>(GetParam()));
  for (const int ranks : {1, 2, 3, 4}) {
    const Problem p = conversation(rng, GetParam());
    const Inputs in = random_inputs(rng, p, rng.chance(0.5) ? Fill::kAdversarial : Fill::kNormal);
    const Result one = one_rank(p, in);
    const std::vector<std::int64_t> single(static_cast<std::size_t>(p.kv_len), 1);
    for (const auto& turns : {std::vector<std::int64_t>{p.kv_len}, single, random_turns(rng, p.kv_len)}) {
      CacheOptions options;
      options.layers = 2;
      options.ring.threads = static_cast<int>(rng.between(1, 3));
      options.ring.heads_per_lap = rng.between(0, 3);
      const bool copies = rng.chance(0.5);
      Transports ends = copies ? odd_transports<Rendezvous>(ranks) : make_inproc_transports(ranks, kDeadline);
      ASSERT_TRUE(same_bits(converse(std::move(ends), p, in, turns, options), one))
          << ranks << " ranks, " << turns.size() << " turns: " << describe(p);
    }
  }
}

TEST_P(Cache, EveryScheduleGivesTheSameBits) {
  Rng rng(7100 + static_cast<std::uint64_t>(GetParam()));
  for (const ScheduleKind schedule : kSchedules) {
    for (const bool copies : {false, true}) {
      const Problem p = conversation(rng, GetParam());
      const Inputs in = random_inputs(rng, p);
      CacheOptions options;
      options.schedule = schedule;
      options.ring.threads = 1;
      Transports ends = copies ? odd_transports<Rendezvous>(4) : make_inproc_transports(4, kDeadline);
      ASSERT_TRUE(
          same_bits(converse(std::move(ends), p, in, random_turns(rng, p.kv_len), options), one_rank(p, in)))
          << schedule_name(schedule) << ": " << describe(p);
    }
  }
}

// Runs body(cache) on two ranks and returns what rank 0 threw.
std::string failure_of(const CacheOptions& options, const std::function<void(KvCache&)>& body) {
  return on_ranks(make_inproc_transports(2, 5.0),
                  [&](Transport& end) {
                    KvCache cache(options, end);
                    body(cache);
                  })[0]
      .message;
}

CacheOptions plain() {
  CacheOptions options;
  options.shape = plain_problem(1, 8);
  options.shape.causal = true;
  options.shape.tile = 4;
  options.capacity = 64;
  options.ring.threads = 1;
  return options;
}

TEST(CacheErrors, NameTheValueAndWhatWouldWork) {
  const auto nothing = [](KvCache&) {};
  CacheOptions o = plain();
  EXPECT_EQ(failure_of(o, nothing), "");
  o.shape.causal = false;
  EXPECT_THAT(failure_of(o, nothing), HasSubstr("set shape.causal"));
  o = plain();
  o.layers = 0;
  EXPECT_THAT(failure_of(o, nothing), HasSubstr("layers is 0"));
  o = plain();
  o.capacity = 0;
  EXPECT_THAT(failure_of(o, nothing), HasSubstr("capacity is 0 tokens"));
  o = plain();
  o.ring.rank_memory = 100;
  EXPECT_THAT(failure_of(o, nothing), HasSubstr("more than the limit of 100"));
  o = plain();
  o.machine = "abacus";
  EXPECT_THAT(failure_of(o, nothing), HasSubstr("abacus"));
  o = plain();
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.begin_turn(0); }), HasSubstr("a turn of 0 tokens"));
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.begin_turn(65); }), HasSubstr("beyond the capacity of 64"));
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.begin_turn(3), c.begin_turn(3); }),
              HasSubstr("layer 0 has not attended the turn of 3 tokens before"));
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.attend(0, {}, {}, {}, {}); }), HasSubstr("no turn has begun"));
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.begin_turn(3), c.attend(1, {}, {}, {}, {}); }),
              HasSubstr("layer is 1"));
  EXPECT_THAT(failure_of(o, [](KvCache& c) { c.begin_turn(3), c.attend(0, {}, {}, {}, {}); }),
              HasSubstr("q has shape"));
}

TEST(CacheErrors, RanksThatDisagreeOnATurnSayHowAndMayGoOn) {
  const auto endings = on_ranks(make_inproc_transports(2, 5.0), [&](Transport& end) {
    KvCache cache(plain(), end);
    try {
      cache.begin_turn(3 + end.rank());
      ADD_FAILURE();
    } catch (const TransportError& error) {
      EXPECT_THAT(error.what(), HasSubstr("q_len"));
    }
    EXPECT_EQ(cache.tokens(), 0);
    EXPECT_EQ(cache.begin_turn(5).tokens, 5);
    EXPECT_EQ(cache.tokens(), 5);
  });
  expect_no_failure(endings);
}

}  // namespace
}  // namespace kvring::test
