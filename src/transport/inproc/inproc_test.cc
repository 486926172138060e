#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvring/error.h"
#include "kvring/transport.h"
#include "transport/conformance.h"

namespace kvring {
namespace {

using Ends = std::vector<std::unique_ptr<Transport>>;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr double kPatient = 60.0;  // seconds; for tests that should not time out on a loaded machine

// Each rank runs `body` on a thread of its own. Returns what it threw, by rank ("" for nothing).
std::vector<std::string> run_ranks(Ends& ends, const std::function<void(Transport&)>& body) {
  std::vector<std::string> errors(ends.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ends.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*ends[r]);
      } catch (const Error& error) {
        errors[r] = std::string(error_code_name(error.code())) + ": " + error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_clean(int ranks, const std::function<void(Transport&)>& body) {
  Ends ends = make_inproc_transports(ranks, kPatient);
  for (const std::string& error : run_ranks(ends, body)) EXPECT_EQ(error, "");
}

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

class InprocRing : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, InprocRing, testing::Values(1, 2, 3, 5, 8));

TEST_P(InprocRing, BlocksVisitEveryRank) {
  expect_clean(GetParam(), [](Transport& end) {
    for (std::uint32_t lap = 0; lap < 20; ++lap) conformance::rotate(end, lap, 5000);
  });
}

TEST_P(InprocRing, BlocksGoOnAsTheyArrive) {
  expect_clean(GetParam(), [](Transport& end) {
    for (std::uint32_t lap = 0; lap < 20; ++lap) conformance::rotate_ahead(end, lap, 5000);
  });
}

TEST_P(InprocRing, BlocksGoOnLongAfterTheyArrived) { expect_clean(GetParam(), conformance::forward_late); }

TEST_P(InprocRing, SendThenReceiveCompletes) {
  expect_clean(GetParam(), [](Transport& end) { conformance::send_then_receive(end, 1 << 20); });
}

TEST_P(InprocRing, KeepsOrder) { expect_clean(GetParam(), conformance::keeps_order); }

TEST_P(InprocRing, Gathers) { expect_clean(GetParam(), conformance::gathers); }

TEST(Inproc, ThousandRanksOnFewCores) {
  expect_clean(256, [](Transport& end) {
    conformance::rotate(end, 0, 64);
    conformance::gathers(end);
  });
  EXPECT_EQ(make_inproc_transports(1024, 1.0).size(), 1024u);
}

// The memory handed out is the sender's own, and it counts as in use until its last reader let go.
TEST(Inproc, LentMemoryIsFreeWhenItsLastReaderLetGo) {
  Ends ends = make_inproc_transports(3, kPatient);
  const std::vector<std::byte> block = conformance::block_of(0, 0, 100);
  const auto send = ends[0]->post_send(1, {}, block);
  const auto first = ends[1]->post_receive(0, {});
  EXPECT_TRUE(ends[1]->completed(first));
  const auto at_1 = ends[1]->wait_receive(first, "block 0");
  EXPECT_EQ(at_1.payload.data(), block.data());
  EXPECT_EQ(at_1.header.checksum, 0u);
  const auto forward = ends[1]->post_send(2, at_1.header, at_1.payload);
  const auto second = ends[2]->post_receive(1, {});
  EXPECT_EQ(ends[2]->wait_receive(second, "block 0").payload.data(), block.data());
  ends[1]->wait_send(forward, "block 0");  // not rank 1's memory: nothing to wait for
  ends[1]->release(first);
  EXPECT_FALSE(ends[0]->completed(send));
  ends[2]->release(second);
  EXPECT_TRUE(ends[0]->completed(send));
  ends[0]->wait_send(send, "block 0");
}

// Rank 1 does nothing any more once it has asked for it.
TEST(Inproc, ForwardNeedsNobodyToLook) {
  Ends ends = make_inproc_transports(3, kPatient);
  const std::vector<std::byte> block = conformance::block_of(0, 0, 100);
  const auto first = ends[1]->post_receive(0, {});
  const auto forward = ends[1]->post_forward(first, 2);
  EXPECT_FALSE(ends[1]->completed(forward));
  const auto second = ends[2]->post_receive(1, {});
  EXPECT_FALSE(ends[2]->completed(second));
  ends[0]->post_send(1, {.lap = 3, .step = 1, .owner = 0}, block);
  EXPECT_TRUE(ends[1]->completed(forward));
  const auto at_2 = ends[2]->wait_receive(second, "block 0");
  EXPECT_EQ(at_2.payload.data(), block.data());
  EXPECT_EQ(at_2.header.step, 2u);
  EXPECT_EQ(at_2.header.lap, 3u);
  ends[2]->release(second);
  ends[1]->wait_receive(first, "block 0");
  ends[1]->release(first);
}

// Whoever computes on after a failure computes for nothing.
TEST(Inproc, ProgressTellsOfAFailure) {
  Ends ends = make_inproc_transports(2, kPatient);
  ends[0]->progress();
  ends[1]->fail("out of luck");
  EXPECT_THROW(ends[0]->progress(), TransportError);
  EXPECT_EQ(ends[0]->verdict().culprit, 1);
  EXPECT_EQ(ends[0]->verdict().text, "rank 1 failed: out of luck");
}

// Ranks 0 and 1 wait, rank 2 is at something else.
TEST(Inproc, VerdictNamesWhoKeepsTheOthersWaiting) {
  Ends ends = make_inproc_transports(3, 0.3);
  const auto errors = run_ranks(ends, [](Transport& end) {
    if (end.rank() < 2) end.wait_receive(end.post_receive(end.rank() + 1, {}), "a block");
  });
  EXPECT_EQ(ends[0]->verdict().culprit, 2);
  EXPECT_THAT(ends[0]->verdict().text, testing::StartsWith("rank 2 keeps the others waiting"));
}

// A rank that passed a block on may leave before the next one has looked.
TEST(Inproc, PassedOnMemoryArrivesAfterThePasserLeft) {
  Ends ends = make_inproc_transports(3, 1.0);
  const std::vector<std::byte> block = conformance::block_of(0, 0, 100);
  const auto send = ends[0]->post_send(1, {}, block);
  const auto first = ends[1]->post_receive(0, {});
  const auto at_1 = ends[1]->wait_receive(first, "block 0");
  ends[1]->post_send(2, at_1.header, at_1.payload);
  ends[1]->release(first);
  ends[1].reset();
  EXPECT_FALSE(ends[0]->completed(send));
  const auto second = ends[2]->post_receive(1, {});
  EXPECT_EQ(ends[2]->wait_receive(second, "block 0").payload.data(), block.data());
  ends[2]->release(second);
  ends[0]->wait_send(send, "block 0");
}

TEST(Inproc, TimeoutSaysWhoWaitsForWhat) {
  Ends ends = make_inproc_transports(4, 0.3);
  const auto start = steady_clock::now();
  const auto receive = ends[3]->post_receive(2, {});
  try {
    ends[3]->wait_receive(receive, "block 5 (lap 2, step 4 of 8)");
    FAIL();
  } catch (const Timeout& timeout) {
    EXPECT_THAT(
        timeout.what(),
        testing::MatchesRegex("rank 3 waited 0\\.[3-9] s for block 5 \\(lap 2, step 4 of 8\\) from rank 2"));
  }
  EXPECT_GE(seconds_since(start), 0.29);
  EXPECT_LT(seconds_since(start), 5.0);

  const auto send = ends[3]->post_send(0, {}, {});
  try {
    ends[3]->wait_send(send, "block 5");
    FAIL();
  } catch (const Timeout& timeout) {
    EXPECT_THAT(timeout.what(), testing::MatchesRegex("rank 3 waited 0\\.[3-9] s for block 5 to rank 0"));
  }
  try {
    ends[3]->allgather("x", "the problem's digest");
    FAIL();
  } catch (const Timeout& timeout) {
    EXPECT_THAT(timeout.what(),
                testing::MatchesRegex("rank 3 waited .* s for the problem's digest from rank 0 and 2 more"));
  }
}

// Rank 0 computes for three deadlines and says so; rank 2 waits for rank 1, which waits for rank 0.
TEST(Inproc, SlowNeighbourThatComputesIsNotDead) {
  Ends ends = make_inproc_transports(3, 0.3);
  const auto errors = run_ranks(ends, [](Transport& end) {
    if (end.rank() == 0) {
      for (int piece = 0; piece < 30; ++piece) {
        std::this_thread::sleep_for(milliseconds(30));
        end.progress();
      }
    } else {
      const auto receive = end.post_receive(end.rank() - 1, {});
      end.wait_receive(receive, "a block");
      end.release(receive);
    }
    if (end.rank() < 2) end.wait_send(end.post_send(end.rank() + 1, {}, {}), "a block");
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(Inproc, FailureEndsEveryWaitPromptly) {
  Ends ends = make_inproc_transports(8, kPatient);
  const auto start = steady_clock::now();
  const auto errors = run_ranks(ends, [](Transport& end) {
    if (end.rank() == 5) {
      std::this_thread::sleep_for(milliseconds(50));
      end.fail("out of luck");
      end.fail("a second reason is ignored");
    } else if (end.rank() < 3) {
      end.wait_receive(end.post_receive(7, {}), "a block");
    } else if (end.rank() == 3) {
      end.wait_send(end.post_send(7, {}, {}), "a block");
    } else {
      end.barrier("the start");
    }
  });
  EXPECT_LT(seconds_since(start), 10.0);
  for (std::size_t r = 0; r < errors.size(); ++r)
    EXPECT_EQ(errors[r], r == 5 ? "" : "Transport: rank 5 failed: out of luck") << r;
}

// After a failure the sender must not free what another rank still reads.
TEST(Inproc, FailedSendReturnsOnlyWhenNobodyReads) {
  Ends ends = make_inproc_transports(2, kPatient);
  std::atomic<bool> failed = false;
  std::atomic<bool> reading = true;
  const auto errors = run_ranks(ends, [&](Transport& end) {
    if (end.rank() == 0) {
      const std::vector<std::byte> block = conformance::block_of(0, 0, 1000);
      const auto send = end.post_send(1, {}, block);
      end.wait_receive(end.post_receive(1, {}), "the go");
      end.fail("no memory");
      failed = true;
      EXPECT_THROW(end.wait_send(send, "a block"), TransportError);
      EXPECT_FALSE(reading);
    } else {
      const auto receive = end.post_receive(0, {});
      const auto payload = end.wait_receive(receive, "a block").payload;
      end.post_send(0, {}, {});
      while (!failed) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_TRUE(conformance::holds(payload, 0, 0, 1000));
      reading = false;
      end.barrier("the end");
    }
  });
  EXPECT_EQ(errors[1], "Transport: rank 0 failed: no memory");
}

TEST(Inproc, FinishedPeerEndsTheWaitForIt) {
  Ends ends = make_inproc_transports(3, kPatient);
  const auto lost = ends[1]->post_send(2, {}, {});
  ends[2].reset();
  const auto receive = ends[1]->post_receive(2, {});
  try {
    ends[1]->wait_receive(receive, "block 2");
    FAIL();
  } catch (const TransportError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 1 waits for block 2 from rank 2, which cannot complete: rank 2 has finished");
  }
  EXPECT_THROW(ends[1]->wait_send(lost, "block 1"), TransportError);
  EXPECT_THROW(ends[1]->wait_send(ends[1]->post_send(2, {}, {}), "block 1"), TransportError);
  EXPECT_THROW(ends[0]->barrier("the end"), TransportError);
}

// Whoever finishes has waited for its sends, so what it leaves behind unreceived points to freed memory.
TEST(Inproc, FinishingWithdrawsWhatNobodyReceived) {
  Ends ends = make_inproc_transports(2, kPatient);
  ends[0]->post_send(1, {}, {});
  ends[0].reset();
  EXPECT_THROW(ends[1]->wait_receive(ends[1]->post_receive(0, {}), "block 0"), TransportError);
}

TEST(Inproc, RefusesWhatCannotBe) {
  EXPECT_THROW(make_inproc_transports(0, 1.0), InvalidArgument);
  EXPECT_THROW(make_inproc_transports(1025, 1.0), InvalidArgument);
  EXPECT_THROW(make_inproc_transports(2, 0.0), InvalidArgument);
  Ends ends = make_inproc_transports(2, kPatient);
  EXPECT_THROW(ends[0]->post_send(0, {}, {}), InvalidArgument);
  EXPECT_THROW(ends[0]->post_receive(2, {}), InvalidArgument);
  EXPECT_THROW(ends[0]->post_receive(-1, {}), InvalidArgument);
  std::vector<std::byte> buffer(1);
  EXPECT_THROW(ends[0]->post_receive(1, buffer), InvalidArgument);
  EXPECT_THROW(ends[0]->completed(99), Internal);
}

}  // namespace
}  // namespace kvring
