// Run by mpirun with any number of ranks; every rank runs every test.
#include "kvring/mpi.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvring/error.h"
#include "tests/support/mpi_main.h"
#include "transport/conformance.h"
#include "transport/mpi/mpi_wire.h"
#include "transport/wire/block.h"
#include "transport/wire/wire_transport.h"

namespace kvring::mpi {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using wire::IncomingBlock;
using wire::kFirstBlockTag;

constexpr double kPatient = 60.0;  // seconds; for tests that should not time out on a loaded machine

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// What `function` throws, as "Timeout: rank ..."; "" for nothing.
template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
    return {};
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
}

class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  // Ranks that ended a test with an error begin the next one together.
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  bool last() const { return rank_ + 1 == size_; }

  // A transport that cuts payloads into pieces of that many bytes.
  static wire::WireTransport in_pieces(std::size_t bytes, MpiProgress progress) {
    return {std::make_unique<MpiWire>(MPI_COMM_WORLD),
            {.deadline_s = kPatient, .thread = progress == MpiProgress::kThread, .largest_piece = bytes}};
  }

  int rank_ = 0;
  int size_ = 0;
};

class MpiRing : public MpiTest, public testing::WithParamInterface<MpiProgress> {
 protected:
  static std::unique_ptr<Transport> make(double deadline_s) {
    return make_mpi_transport(MPI_COMM_WORLD, deadline_s, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(, MpiRing, testing::Values(MpiProgress::kThread, MpiProgress::kInline),
                         [](const auto& mode) {
                           return mode.param == MpiProgress::kThread ? "Thread" : "Inline";
                         });

TEST_P(MpiRing, BlocksVisitEveryRank) {
  const auto end = make(kPatient);
  EXPECT_STREQ(end->name(), "mpi");
  for (const std::size_t bytes : {0, 1, 5000, 3 << 20})
    for (std::uint32_t lap = 0; lap < 3; ++lap) {
      conformance::rotate(*end, lap, bytes);
      conformance::rotate_ahead(*end, lap, bytes);
    }
}

TEST_P(MpiRing, BlocksGoOnLongAfterTheyArrived) { conformance::forward_late(*make(kPatient)); }

TEST_P(MpiRing, BlocksOfManyPiecesVisitEveryRank) {
  for (const std::size_t piece : {1, 1000, 4096}) {
    auto end = in_pieces(piece, GetParam());
    for (const std::size_t bytes : {1, 999, 4096, 5000}) {
      if (bytes / piece >= 1000) continue;
      conformance::rotate(end, 0, bytes);
      conformance::rotate_ahead(end, 0, bytes);
    }
  }
}

TEST_P(MpiRing, SendThenReceiveCompletes) {
  const auto end = make(kPatient);
  for (const std::size_t bytes : {0, 100, 8 << 20}) conformance::send_then_receive(*end, bytes);
}

TEST_P(MpiRing, KeepsOrder) { conformance::keeps_order(*make(kPatient)); }

TEST_P(MpiRing, Gathers) {
  conformance::gathers(*make(kPatient));
  auto in_rounds = in_pieces(10, GetParam());
  conformance::gathers(in_rounds);
}

// A block straight from MPI_Send, with whatever fault.
struct RawBlock {
  MessageHeader header;
  std::vector<std::byte> payload;
};

class MpiFaultyBlock : public MpiTest {
 protected:
  // Rank 0 sends the block as it is, rank 1 receives block 0 into `room` bytes. Returns rank 1's error.
  std::string receive(const RawBlock& block, std::size_t room) {
    MpiWire mpi(MPI_COMM_WORLD);
    std::string error;
    {
      const wire::Calls calls(mpi);
      const auto finish = [&](wire::Operation operation) {
        while (!mpi.test(operation)) std::this_thread::yield();
      };
      if (rank_ == 0) {
        const auto header = mpi.send(1, kFirstBlockTag, std::as_bytes(std::span(&block.header, 1)), {});
        const auto payload = mpi.send(1, kFirstBlockTag, block.payload, {});
        finish(header);
        finish(payload);
      } else if (rank_ == 1) {
        std::vector<std::byte> buffer(room);
        IncomingBlock incoming({.peer = 0, .sequence = 0}, buffer);
        error = error_of([&] {
          while (!incoming.done()) incoming.pump(mpi);
        });
        EXPECT_TRUE(incoming.retire(mpi));
        // Payload that was refused by its header is still on its way.
        std::vector<std::byte> rest(block.payload.size());
        if (block.header.sequence != 0 || block.header.bytes > room)
          finish(mpi.receive(0, kFirstBlockTag, rest, {}));
      }
    }
    mpi.close();
    return error;
  }

  void expect_error(const RawBlock& block, std::size_t room, const testing::Matcher<std::string>& error) {
    if (size_ < 2) GTEST_SKIP() << "needs two ranks";
    const std::string got = receive(block, room);
    if (rank_ == 1) {
      EXPECT_THAT(got, error);
    }
  }

  RawBlock good(std::size_t bytes) {
    RawBlock block{.header = {}, .payload = conformance::block_of(0, 0, bytes)};
    block.header.bytes = bytes;
    block.header.checksum = wire::checksum_of(block.payload);
    return block;
  }
};

TEST_F(MpiFaultyBlock, GoodOneArrives) { expect_error(good(1000), 1000, ""); }

TEST_F(MpiFaultyBlock, ShorterThanTheBufferIsFine) { expect_error(good(1000), 4000, ""); }

TEST_F(MpiFaultyBlock, Damaged) {
  RawBlock block = good(1000);
  block.header.checksum = 0x0123456789abcdef;
  const std::string right = fmt::format("{:016x}", wire::checksum_of(block.payload));
  expect_error(block, 1000,
               "Transport: block 0 from rank 0 was damaged on its way: checksum " + right +
                   ", its header says 0123456789abcdef");
}

TEST_F(MpiFaultyBlock, OutOfOrder) {
  RawBlock block = good(1000);
  block.header.sequence = 3;
  expect_error(block, 1000, "Transport: block 3 arrived from rank 0 where block 0 was due");
}

TEST_F(MpiFaultyBlock, TooLong) {
  expect_error(good(1000), 999,
               "Transport: block 0 from rank 0 has 1000 bytes, the receive has room for 999");
}

TEST_F(MpiFaultyBlock, Truncated) {
  RawBlock block = good(1000);
  block.payload.pop_back();
  expect_error(block, 1000, "Transport: block 0 from rank 0: 999 bytes arrived, its header says 1000");
}

// An error that MPI finds comes back too, also from MPICH (ReturnErrors).
TEST_F(MpiFaultyBlock, LongerThanItsHeaderSays) {
  RawBlock block = good(1000);
  block.header.bytes = 900;
  expect_error(block, 1000, testing::ContainsRegex("^Transport: MPI_Test: .*truncated"));
}

// The last rank takes no part until the one that waits for it has given up.
TEST_P(MpiRing, MissingRankTimesOut) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make(0.3);
  std::vector<std::byte> buffer(100);
  if (!last()) {
    const auto start = steady_clock::now();
    const std::string error = error_of(
        [&] { end->wait_receive(end->post_receive(size_ - 1, buffer), "block 5 (lap 2, step 4 of 8)"); });
    EXPECT_THAT(error,
                testing::MatchesRegex("(Timeout: |Transport: rank . failed: )rank . waited 0\\.[2-9] s "
                                      "for block 5 \\(lap 2, step 4 of 8\\) from rank [123].*"));
    EXPECT_LT(seconds_since(start), 5.0);
    EXPECT_EQ(end->verdict().culprit, size_ - 1) << end->verdict().text;
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(MpiRing, CollectiveTimesOut) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make(0.3);
  if (!last()) {
    EXPECT_THAT(error_of([&] { end->allgather("x", "the problem's digest"); }),
                testing::MatchesRegex("(Timeout: rank . waited 0\\.[3-9] s for the problem's digest from the "
                                      "other ranks|Transport: rank . failed: rank . waited).*"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The last rank computes for three deadlines and says so; the others wait for it in a chain.
TEST_P(MpiRing, SlowNeighbourThatComputesIsNotDead) {
  const auto end = make(0.5);
  std::vector<std::byte> buffer(100);
  if (last()) {
    for (int piece = 0; piece < 30; ++piece) {
      std::this_thread::sleep_for(milliseconds(50));
      end->progress();
    }
  } else {
    const auto receive = end->post_receive(rank_ + 1, buffer);
    EXPECT_EQ(error_of([&] { end->wait_receive(receive, "a block"); }), "");
    end->release(receive);
  }
  if (rank_ > 0) end->wait_send(end->post_send(rank_ - 1, {}, {}), "a block");
  EXPECT_EQ(error_of([&] { end->barrier("the end"); }), "");
}

TEST_P(MpiRing, FailureEndsEveryWaitPromptly) {
  const auto start = steady_clock::now();
  auto end = make(kPatient);
  std::vector<std::byte> buffer(1 << 20);
  std::string error;
  if (last()) {
    std::this_thread::sleep_for(milliseconds(50));
    end->fail("out of luck");
    end->fail("a second reason is ignored");
    error = error_of([&] { end->barrier("the end"); });
  } else if (rank_ == 0) {
    error = error_of([&] { end->wait_receive(end->post_receive(size_ - 1, buffer), "a block"); });
  } else if (rank_ == 1) {
    const auto send = end->post_send(size_ - 1, {}, buffer);
    error = error_of([&] {
      end->wait_send(send, "a block");
      end->wait_receive(end->post_receive(0, buffer), "a block");
    });
  } else {
    error = error_of([&] { end->allgather("x", "the start"); });
  }
  EXPECT_EQ(error, "Transport: rank " + std::to_string(size_ - 1) + " failed: out of luck");
  EXPECT_EQ(error_of([&] { end->barrier("the end"); }), error);
  end.reset();
  EXPECT_LT(seconds_since(start), 10.0);
}

// Inline, MPI may be called by one thread only: the failure leaves with the next call of that one.
TEST_P(MpiRing, AnotherThreadMayFail) {
  const auto end = make(kPatient);
  if (rank_ == 0) std::thread([&] { end->fail("a worker failed"); }).join();
  EXPECT_EQ(error_of([&] {
              end->barrier("the end");
              end->barrier("the very end");
            }),
            "Transport: rank 0 failed: a worker failed");
}

TEST_P(MpiRing, FinishedPeerEndsTheWaitForIt) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto start = steady_clock::now();
  auto end = make(kPatient);
  std::vector<std::byte> buffer(100);
  if (rank_ == 0) {
    EXPECT_EQ(error_of([&] { end->wait_receive(end->post_receive(1, buffer), "block 1"); }),
              "Transport: rank 0 waits for block 1 from rank 1, which cannot complete: rank 1 has finished");
    end->fail("nothing came");
  }
  end.reset();
  EXPECT_LT(seconds_since(start), 10.0);
}

// MPI's own truncation is not safe: see block.h, and MPICH 4.0 ends the program.
TEST_P(MpiRing, TooLongBlockNeitherOverrunsNorEndsTheProgram) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make(kPatient);
  std::vector<std::byte> bytes(1 << 20, std::byte{static_cast<unsigned char>(rank_)});
  std::string error;
  if (rank_ == 0) {
    end->post_send(1, {}, bytes);
    error = error_of([&] { end->barrier("the end"); });
  } else if (rank_ == 1) {
    const auto receive = end->post_receive(0, std::span(bytes).first(10));
    error = error_of([&] { end->wait_receive(receive, "block 0"); });
    end->fail("what came was too long");
    EXPECT_EQ(std::ranges::count(bytes, std::byte{1}), 1 << 20);
  } else {
    error = error_of([&] { end->barrier("the end"); });
  }
  EXPECT_EQ(error, rank_ == 1
                       ? "Transport: block 0 from rank 0 has 1048576 bytes, the receive has room for 10"
                       : "Transport: rank 1 failed: block 0 from rank 0 has 1048576 bytes, the receive has "
                         "room for 10");
}

TEST_P(MpiRing, RefusesWhatCannotBe) {
  EXPECT_THROW(make(0.0), InvalidArgument);
  EXPECT_THROW(make_mpi_transport(MPI_COMM_NULL, 1.0), InvalidArgument);
  const auto end = make(kPatient);
  EXPECT_THROW(end->post_send(rank_, {}, {}), InvalidArgument);
  EXPECT_THROW(end->post_receive(size_, {}), InvalidArgument);
  EXPECT_THROW(end->completed(99), Internal);
}

}  // namespace
}  // namespace kvring::mpi

int main(int argc, char** argv) { return kvring::test::run_mpi_tests(argc, argv); }
