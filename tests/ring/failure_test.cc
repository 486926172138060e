// One rank fails: it says why, the others end too, and nobody reads memory that is gone.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>

#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;

struct Call {
  ConstTensorView q, k, v;
  TensorView out;
  LseView lse;
  const float* sinks;
};

// All ranks make the ring and one good call; in the second, rank 2 passes what `spoil` makes of its tensors.
// It must throw InvalidArgument with `words`; the others TransportError, and so must everybody's third call.
void expect_invalid(const Problem& p, const std::function<void(Call&)>& spoil, const std::string& words,
                    Transports ends = make_inproc_transports(kRanks, kDeadline)) {
  Rng rng(231);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, kRanks);
  const Timer timer;
  const auto endings = on_ranks(std::move(ends), [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    Call call{as_const(local.q.view()), as_const(local.k.view()), as_const(local.v.view()),
              local.out.view(),         local.lse_view(),         local.sinks};
    if (end.rank() == 2) spoil(call);
    try {
      ring.attend(call.q, call.k, call.v, call.out, call.lse, call.sinks);
    } catch (const Error&) {
      EXPECT_THROW(local.attend(ring), TransportError) << "rank " << end.rank();
      throw;
    }
  });
  EXPECT_LT(timer.seconds(), kQuickly);
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    ASSERT_TRUE(endings[rank].failed) << "rank " << rank;
    EXPECT_EQ(endings[rank].code, rank == 2 ? ErrorCode::kInvalidArgument : ErrorCode::kTransport)
        << endings[rank].message;
    EXPECT_THAT(endings[rank].message, HasSubstr(words));
  }
}

TEST(RingFailure, WrongTensorsOnOneRankEndAllRanks) {
  const Problem p = plain_problem(96, 8);
  expect_invalid(
      p, [](Call& c) { c.q.shape[1] -= 1; }, "q has shape");
  expect_invalid(
      p, [](Call& c) { c.k.shape[2] += 1; }, "k has shape");
  expect_invalid(
      p, [](Call& c) { c.v.dtype = DType::kF16; }, "v is f16; the problem says f32");
  expect_invalid(
      p, [](Call& c) { c.out.shape[3] = 7; }, "out has shape");
  expect_invalid(
      p, [](Call& c) { c.lse.shape[2] = 1; }, "lse has shape");
  expect_invalid(
      p, [](Call& c) { c.k.data = nullptr; }, "k has no data");
  expect_invalid(
      p, [](Call& c) { c.v.stride[3] = 2; }, "stride of 2 in its last dimension");
  expect_invalid(
      p, [](Call& c) { c.out.data = const_cast<void*>(c.q.data); }, "out shares the memory");
  const float sinks[] = {0, 0, 0, 0};
  expect_invalid(
      p, [&](Call& c) { c.sinks = sinks; }, "the problem has none");
}

TEST(RingFailure, MissingOrSenselessSinksOnOneRankEndAllRanks) {
  Problem p = plain_problem(96, 8);
  p.has_sinks = true;
  const float infinite[] = {0, 0, std::numeric_limits<float>::infinity(), 0};
  expect_invalid(
      p, [](Call& c) { c.sinks = nullptr; }, "the call passes none");
  expect_invalid(
      p, [&](Call& c) { c.sinks = infinite; }, "the sink of head 2 is inf");
}

TEST(RingFailure, WrongTensorsOnOneRankEndAllRanksOfATransportThatCopies) {
  expect_invalid(
      plain_problem(96, 8), [](Call& c) { c.q.shape[1] -= 1; }, "q has shape",
      odd_transports<Rendezvous>(kRanks));
}

// A rank that leaves after the first of two layers waits for the others, and they for it, until the deadline.
TEST(RingFailure, RankThatLeavesEndsTheOthersAtTheDeadline) {
  const Problem p = plain_problem(96, 8);
  Rng rng(232);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, kRanks);
  const Timer timer;
  const auto endings = on_ranks(make_inproc_transports(kRanks, 1.0), [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    if (end.rank() != 1) local.attend(ring);
  });
  EXPECT_LT(timer.seconds(), kQuickly);
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    EXPECT_EQ(endings[rank].failed, rank != 1) << rank;
    EXPECT_TRUE(rank == 1 || endings[rank].code == ErrorCode::kTransport ||
                endings[rank].code == ErrorCode::kTimeout)
        << endings[rank].message;
  }
}

// Rank 2 passes wrong tensors to each of its calls: at every point of time, under every delay, all end.
TEST(RingFailure, FailuresAmongLateRanksEndAllRanks) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    expect_invalid(
        plain_problem(64, 8), [](Call& c) { c.q.shape[1] -= 1; }, "q has shape",
        odd_transports<Late>(kRanks, seed));
  }
}

// What a host's own callback throws is the host's: it comes back on that rank, and ends the others.
struct HostError {};

TEST(RingFailure, ProgressCallbackThatThrowsEndsAllRanks) {
  const Problem p = plain_problem(96, 8);
  Rng rng(233);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, kRanks);
  const auto endings = on_ranks(kRanks, [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    if (end.rank() != 1) return local.attend(ring);
    ring.set_progress([](double) { throw HostError(); });
    EXPECT_THROW(local.attend(ring), HostError);
    EXPECT_THROW(local.attend(ring), TransportError);  // and not a second time into a broken lap
  });
  for (std::size_t rank = 0; rank < endings.size(); ++rank)
    EXPECT_EQ(endings[rank].failed, rank != 1) << rank;
}

TEST(RingFailure, WholeTensorCallPassesOnWhatTheCallbackThrows) {
  const Problem p = plain_problem(96, 8);
  Rng rng(234);
  const Inputs in = random_inputs(rng, p);
  AttendOptions options;
  options.ranks = kRanks;
  options.progress = [](double) { throw HostError(); };
  EXPECT_THROW(run_inproc(p, options, in), HostError);
}

// The views of whole tensors are checked before any rank copies from them.
TEST(RingFailure, WholeTensorsThatCannotBeReadAreRefused) {
  const Problem p = plain_problem(96, 8);
  Rng rng(235);
  Inputs in = random_inputs(rng, p);
  Result r = empty_result(p);
  AttendOptions options;
  options.ranks = 3;
  const auto message = [&](const std::function<void(Call&)>& spoil) -> std::string {
    Call c{as_const(in.q.view()), as_const(in.k.view()), as_const(in.v.view()), r.out.view(), {}, nullptr};
    spoil(c);
    try {
      attend(p, options, c.q, c.k, c.v, c.out, c.lse, c.sinks);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(message([](Call& c) { c.q.data = nullptr; }), HasSubstr("q has no data"));
  EXPECT_THAT(message([](Call& c) { c.out.data = nullptr; }), HasSubstr("out has no data"));
  EXPECT_THAT(message([](Call& c) { c.k.stride[3] = 2; }), HasSubstr("stride of 2 in its last dimension"));
  EXPECT_THAT(message([](Call& c) { c.v.dtype = DType::kBF16; }),
              HasSubstr("v is bf16; the problem says f32"));
  EXPECT_THAT(message([](Call& c) { c.v.shape[1] = 5; }), HasSubstr("v has shape"));
  EXPECT_THAT(message([](Call& c) { c.out.data = const_cast<void*>(c.q.data); }),
              HasSubstr("out shares the memory"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In a process with room for a few more stacks of 8 MiB. Exits 0 when the body throws OutOfBudget with words.
[[noreturn]] void exit_out_of_budget(const std::function<void()>& body, const std::string& words) {
  constexpr rlim_t kBytes = rlim_t{1} << 29;
  const rlimit limit{kBytes, kBytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    body();
  } catch (const OutOfBudget& error) {
    std::exit(std::string(error.what()).find(words) == std::string::npos ? 2 : 0);
  }
  std::exit(1);
}

void expect_out_of_budget(const std::function<void()>& body, const std::string& words) {
  EXPECT_EXIT(exit_out_of_budget(body, words), testing::ExitedWithCode(0), "");
}

TEST(RingFailure, MachineWithoutThreadsForAllRanksIsOutOfBudget) {
  const Problem p = plain_problem(96, 8);
  AttendOptions options;
  options.ranks = 200;
  Rng rng(236);
  const Inputs in = random_inputs(rng, p);
  expect_out_of_budget([&] { run_inproc(p, options, in); }, "threads for 200 ranks");
}

TEST(RingFailure, MachineWithoutThreadsForTheKernelIsOutOfBudget) {
  const Problem p = plain_problem(96, 8);
  RingOptions options;
  options.threads = 200;
  expect_out_of_budget(
      [&] {
        const Transports ends = make_inproc_transports(1, kDeadline);
        Ring ring(p, make_layouts({}, p, 1), options, *ends[0]);
      },
      "not enough threads for rank 0");
}

TEST(RingFailure, WorkspaceBeyondTheMachineIsOutOfBudgetOnThatRankAndTransportErrorOnTheOthers) {
  Problem p = plain_problem(4, 4);
  p.q_len = std::int64_t{1} << 45;
  p.q_heads = p.kv_heads = 1;
  p.head_dim = p.value_dim = 1;
  const Layouts layouts{make_layout({LayoutKind::kContiguous, 0, Cut::kTokens}, p.q_len, {}, p.tile, 2),
                        make_layout({LayoutKind::kContiguous}, p.kv_len, {}, p.tile, 2)};
  for (const Ending& ending :
       on_ranks(2, [&](Transport& end) { Ring ring(p, layouts, one_thread(), end); })) {
    EXPECT_EQ(ending.code, ErrorCode::kOutOfBudget);
    EXPECT_THAT(ending.message, HasSubstr("not enough memory for rank"));
  }
}
#endif

}  // namespace
}  // namespace kvring::test
