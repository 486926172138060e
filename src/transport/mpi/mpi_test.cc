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
#include "transport/mpi/block.h"
#include "transport/mpi/check.h"
#include "transport/mpi/mpi_transport.h"

namespace kvring::mpi {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

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

  int rank_ = 0;
  int size_ = 0;
};

TEST_F(MpiTest, BlocksVisitEveryRank) {
  const auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
  EXPECT_STREQ(end->name(), "mpi");
  for (const std::size_t bytes : {0, 1, 5000, 3 << 20})
    for (std::uint32_t lap = 0; lap < 3; ++lap) conformance::rotate(*end, lap, bytes);
}

TEST_F(MpiTest, BlocksOfManyPiecesVisitEveryRank) {
  for (const std::size_t piece : {1, 1000, 4096}) {
    MpiTransport end(MPI_COMM_WORLD, kPatient, piece);
    for (const std::size_t bytes : {1, 999, 4096, 5000})
      if (bytes / piece < 1000) conformance::rotate(end, 0, bytes);
  }
}

TEST_F(MpiTest, SendThenReceiveCompletes) {
  const auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
  for (const std::size_t bytes : {0, 100, 8 << 20}) conformance::send_then_receive(*end, bytes);
}

TEST_F(MpiTest, KeepsOrder) { conformance::keeps_order(*make_mpi_transport(MPI_COMM_WORLD, kPatient)); }

TEST_F(MpiTest, Gathers) {
  conformance::gathers(*make_mpi_transport(MPI_COMM_WORLD, kPatient));
  MpiTransport in_rounds(MPI_COMM_WORLD, kPatient, 10);
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
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const ReturnErrors return_errors;
    std::string error;
    if (rank_ == 0) {
      MPI_Request requests[2];
      MPI_Isend(&block.header, sizeof block.header, MPI_BYTE, 1, kFirstBlockTag, comm, &requests[0]);
      MPI_Isend(block.payload.data(), static_cast<int>(block.payload.size()), MPI_BYTE, 1, kFirstBlockTag,
                comm, &requests[1]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else if (rank_ == 1) {
      std::vector<std::byte> buffer(room);
      IncomingBlock incoming({.comm = comm, .peer = 0, .sequence = 0}, buffer);
      error = error_of([&] {
        while (!incoming.done()) incoming.pump();
        incoming.result();
      });
      EXPECT_TRUE(incoming.idle());
      // Payload that was refused by its header is still on its way.
      std::vector<std::byte> rest(block.payload.size());
      if (block.header.sequence != 0 || block.header.bytes > room)
        MPI_Recv(rest.data(), static_cast<int>(rest.size()), MPI_BYTE, 0, kFirstBlockTag, comm,
                 MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&comm);
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
    block.header.checksum = checksum_of(block.payload);
    return block;
  }
};

TEST_F(MpiFaultyBlock, GoodOneArrives) { expect_error(good(1000), 1000, ""); }

TEST_F(MpiFaultyBlock, ShorterThanTheBufferIsFine) { expect_error(good(1000), 4000, ""); }

TEST_F(MpiFaultyBlock, Damaged) {
  RawBlock block = good(1000);
  block.header.checksum = 0x0123456789abcdef;
  const std::string right = fmt::format("{:016x}", checksum_of(block.payload));
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
TEST_F(MpiTest, MissingRankTimesOut) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make_mpi_transport(MPI_COMM_WORLD, 0.3);
  std::vector<std::byte> buffer(100);
  if (rank_ == 0) {
    const auto start = steady_clock::now();
    const std::string error = error_of(
        [&] { end->wait_receive(end->post_receive(size_ - 1, buffer), "block 5 (lap 2, step 4 of 8)"); });
    EXPECT_THAT(error,
                testing::MatchesRegex("Timeout: rank 0 waited 0\\.[3-9] s for block 5 \\(lap 2, step 4 of "
                                      "8\\) from rank [123]"));
    EXPECT_LT(seconds_since(start), 5.0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_F(MpiTest, CollectiveTimesOut) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make_mpi_transport(MPI_COMM_WORLD, 0.3);
  if (!last()) {
    EXPECT_THAT(error_of([&] { end->allgather("x", "the problem's digest"); }),
                testing::MatchesRegex("Timeout: rank . waited 0\\.[3-9] s for the problem's digest from the "
                                      "other ranks"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The last rank computes for three deadlines and says so; the others wait for it in a chain.
TEST_F(MpiTest, SlowNeighbourThatComputesIsNotDead) {
  const auto end = make_mpi_transport(MPI_COMM_WORLD, 0.5);
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

TEST_F(MpiTest, FailureEndsEveryWaitPromptly) {
  const auto start = steady_clock::now();
  auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
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

// MPI may be called by one thread only: the failure leaves with the next call of that one.
TEST_F(MpiTest, AnotherThreadMayFail) {
  const auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
  if (rank_ == 0) std::thread([&] { end->fail("a worker failed"); }).join();
  EXPECT_EQ(error_of([&] {
              end->barrier("the end");
              end->barrier("the very end");
            }),
            "Transport: rank 0 failed: a worker failed");
}

TEST_F(MpiTest, FinishedPeerEndsTheWaitForIt) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto start = steady_clock::now();
  auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
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
TEST_F(MpiTest, TooLongBlockNeitherOverrunsNorEndsTheProgram) {
  if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  const auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
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
                       : "Transport: rank 1 failed: what came was too long");
}

TEST_F(MpiTest, RefusesWhatCannotBe) {
  EXPECT_THROW(make_mpi_transport(MPI_COMM_WORLD, 0.0), InvalidArgument);
  EXPECT_THROW(make_mpi_transport(MPI_COMM_NULL, 1.0), InvalidArgument);
  const auto end = make_mpi_transport(MPI_COMM_WORLD, kPatient);
  EXPECT_THROW(end->post_send(rank_, {}, {}), InvalidArgument);
  EXPECT_THROW(end->post_receive(size_, {}), InvalidArgument);
  EXPECT_THROW(end->ready(99), Internal);
}

}  // namespace
}  // namespace kvring::mpi

int main(int argc, char** argv) { return kvring::test::run_mpi_tests(argc, argv); }
