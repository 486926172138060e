// One case for every kind of fault, at a fixed place of a fixed ring, and the guard that catches it. Each was
// seen to fail with its guard taken out of the source; the comments say what then happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "tests/ring/ring_support.h"
#include "tests/sim/judge.h"
#include "tests/sim/trial.h"

namespace kvring::sim {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Three ranks, full attention, two calls of two laps. In every lap each rank sends its own block and then
// passes one on: 12 blocks a call, each a header and one piece.
World plain_world() {
  World world;
  world.seed = 1;
  world.ranks = 3;
  world.calls = 2;
  world.problem = test::plain_problem(24, 4);
  world.layouts = make_layouts({}, world.problem, world.ranks);
  world.heads_per_lap = 1;
  world.deadline_s = 1;
  world.largest_piece = 1 << 20;
  world.network.latency = std::chrono::microseconds(20);
  world.network.longest_eager = 100;
  world.network.longest_nap = milliseconds(15);
  world.network.most_calls = 3'000'000;
  world.pace.assign(3, milliseconds(2));
  return world;
}

Fault fault_of(FaultKind kind, Class message_class, std::uint64_t index, std::uint64_t detail = 0) {
  Fault fault;
  fault.kind = kind;
  fault.message_class = message_class;
  fault.index = index;
  fault.detail = detail;
  fault.length = milliseconds(300);
  return fault;
}

Fault outage_of(FaultKind kind, int rank, Duration length, int peer = 0) {
  Fault fault;
  fault.kind = kind;
  fault.rank = rank;
  fault.peer = peer;
  fault.at = kStart + milliseconds(5);
  fault.length = length;
  return fault;
}

std::uint64_t bit_of(std::size_t byte, unsigned bit = 0) { return byte * 8 + bit; }

// The words of the first error; "" when all ranks returned.
std::string error(const std::vector<Fault>& faults) {
  const World world = plain_world();
  Trial trial{world, faults, simulate(world, expect(world), faults), {}};
  trial.wrong = judge(world, faults, trial.run);
  EXPECT_TRUE(trial.wrong.empty()) << describe(trial);
  EXPECT_TRUE(trial.run.fired[0]) << describe(trial);
  const RankEnd* first = first_error(trial.run);
  return first ? first->error : "";
}

void expect_healed(const std::vector<Fault>& faults) { EXPECT_EQ(error(faults), "") << describe(faults[0]); }

// block.cc, finish_check(). Without it: wrong bits.
TEST(Guard, ChecksumCatchesAFlippedBitOfAPayload) {
  EXPECT_THAT(error({fault_of(FaultKind::kFlip, Class::kPiece, 4, bit_of(2, 6))}),
              HasSubstr("was damaged on its way"));
}

// executor.cc, receive(). Without it: wrong bits, since everything else about the block is right.
TEST(Guard, HeaderCatchesABlockOfAnotherCall) {
  EXPECT_THAT(error({fault_of(FaultKind::kForeign, Class::kHeader, 13)}), HasSubstr("of call 1, lap 0"));
}

// executor.cc, receive(). Without it: the fault goes unnoticed.
TEST(Guard, HeaderCatchesAFlippedBitOfEachOfItsFields) {
  for (const std::size_t field :
       {offsetof(MessageHeader, problem_digest), offsetof(MessageHeader, call), offsetof(MessageHeader, lap),
        offsetof(MessageHeader, step), offsetof(MessageHeader, owner), offsetof(MessageHeader, cargo),
        offsetof(MessageHeader, share)})
    EXPECT_THAT(error({fault_of(FaultKind::kFlip, Class::kHeader, 4, bit_of(field))}),
                HasSubstr(" expected block "))
        << "byte " << field;
}

// block.cc, accept_header(). Without it: left to the executor's check of call and lap.
TEST(Guard, SequenceCatchesAStaleBlock) {
  EXPECT_THAT(error({fault_of(FaultKind::kStale, Class::kHeader, 13)}), HasSubstr("was due"));
  EXPECT_THAT(
      error({fault_of(FaultKind::kFlip, Class::kHeader, 4, bit_of(offsetof(MessageHeader, sequence)))}),
      HasSubstr("was due"));
}

// block.cc, accept_header(). Without it: receives are posted beyond the end of the buffer.
TEST(Guard, LengthCatchesAHeaderThatSaysMoreThanThereIsRoomFor) {
  EXPECT_THAT(
      error({fault_of(FaultKind::kFlip, Class::kHeader, 4, bit_of(offsetof(MessageHeader, bytes) + 2))}),
      HasSubstr("has room for"));
}

// block.cc, pump(). Without it: left to the checksum.
TEST(Guard, LengthCatchesATruncatedPayload) {
  EXPECT_THAT(error({fault_of(FaultKind::kTruncate, Class::kPiece, 4, 100)}), HasSubstr("bytes arrived"));
}

// block.cc, accept_header(). Without it: what is missing is taken for zeros, and left to the other guards.
TEST(Guard, LengthCatchesATruncatedHeader) {
  EXPECT_THAT(error({fault_of(FaultKind::kTruncate, Class::kHeader, 4, 30)}), HasSubstr("a header has"));
  EXPECT_THAT(error({fault_of(FaultKind::kDrop, Class::kHeader, 4)}), HasSubstr("truncated"));
}

// block.cc, pump(): the second header meets the receive of the payload. Without it: left to the checksum.
TEST(Guard, LengthCatchesAHeaderThatCameTwice) {
  EXPECT_THAT(error({fault_of(FaultKind::kDuplicate, Class::kHeader, 4)}), HasSubstr("bytes arrived"));
}

// gathering.cc, check_strings() and collect_lengths(). Without the first: an error of the JSON parser, which
// is none of kvring's. Without the second: this rank waits for more bytes of another than that one sends.
TEST(Guard, ChecksumCatchesAFlippedBitOfACollective) {
  EXPECT_THAT(error({fault_of(FaultKind::kFlip, Class::kCollective, 8, bit_of(40, 7))}),
              HasSubstr("told all ranks was damaged"));
  EXPECT_THAT(error({fault_of(FaultKind::kFlip, Class::kCollective, 2, bit_of(5))}),
              HasSubstr("told all ranks was damaged"));
}

// control.cc, read(). Without it: a heartbeat becomes the failure, or the end, of a rank that is well, and
// the ring ends.
TEST(Guard, ChecksumCatchesAFlippedBitOfAHeartbeat) {
  // A rank that pauses, so that heartbeats are sent.
  const Fault pause = outage_of(FaultKind::kPause, 0, milliseconds(300));
  for (std::size_t byte = 0; byte < 64; ++byte)
    for (const unsigned bit : {0, 1})
      expect_healed({fault_of(FaultKind::kFlip, Class::kControl, byte % 4, bit_of(byte, bit)), pause});
}

// Heartbeats repeat themselves. What is shorter than a note is none (control.cc, read()); without that check:
// memory beyond its end is read.
TEST(Guard, LostAndDoubledHeartbeatsDoNotMatter) {
  const Fault pause = outage_of(FaultKind::kPause, 0, milliseconds(300));
  for (const FaultKind kind : {FaultKind::kDrop, FaultKind::kDuplicate, FaultKind::kTruncate})
    for (const std::uint64_t note : {0, 1, 2, 3})
      expect_healed({fault_of(kind, Class::kControl, note), pause});
}

// wire_transport.cc, wait(). Without it: the ring waits for ever.
TEST(Guard, DeadlineCatchesWhatIsLost) {
  EXPECT_THAT(error({fault_of(FaultKind::kDrop, Class::kPiece, 4)}), HasSubstr("waited 1.1 s for block"));
  EXPECT_THAT(error({fault_of(FaultKind::kDrop, Class::kCollective, 8)}), HasSubstr("waited 1.1 s for the"));
  EXPECT_THAT(error({fault_of(FaultKind::kMisroute, Class::kHeader, 4)}),
              HasSubstr("waited 1.1 s for block"));
}

// wire_transport.cc, check_silence(), and verdict.cc; judge() sees to it that the right rank is named.
// Without the answers that settle() waits for: rank 1 is not named.
TEST(Guard, SilenceNamesTheRankThatIsGone) {
  constexpr Duration kForever = Duration::max();
  EXPECT_THAT(error({outage_of(FaultKind::kCrash, 1, kForever)}), HasSubstr("waited 1."));
  EXPECT_THAT(error({outage_of(FaultKind::kStall, 1, milliseconds(2500))}), HasSubstr("waited 1."));
  EXPECT_THAT(error({outage_of(FaultKind::kIsolate, 1, kForever)}), HasSubstr("waited 1."));
  EXPECT_THAT(error({outage_of(FaultKind::kCut, 1, kForever, 2)}), HasSubstr("waited 1."));
}

TEST(Guard, WhatLastsLessThanTheDeadlineHeals) {
  expect_healed({outage_of(FaultKind::kPause, 1, milliseconds(800))});
  expect_healed({outage_of(FaultKind::kOutage, 1, milliseconds(800), 2)});
  expect_healed({fault_of(FaultKind::kDelay, Class::kPiece, 4)});
  expect_healed({fault_of(FaultKind::kDelay, Class::kHeader, 4)});
  expect_healed({fault_of(FaultKind::kDelay, Class::kCollective, 8)});
  expect_healed({fault_of(FaultKind::kDuplicate, Class::kPiece, 4)});
}

// deadline.cc, expiry(). Without it: rank 0 waits for longer than the deadline for one block and gives up,
// although first rank 1 and then rank 2 is slow, and neither for that long.
TEST(Guard, TheDeadlineCountsFromTheLastSignOfLife) {
  Fault later = outage_of(FaultKind::kPause, 2, milliseconds(700));
  later.at += milliseconds(690);
  expect_healed({outage_of(FaultKind::kPause, 1, milliseconds(700)), later});
}

}  // namespace
}  // namespace kvring::sim
