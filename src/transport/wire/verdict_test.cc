#include "transport/wire/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvring::wire {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Clock::time_point kNow(seconds(1000));

Status waits() { return {.progress = 1, .waiting = 1, .waiting_on = -1}; }

// Of four ranks, as rank 1 sees it: its patience is at an end, all wait and all have answered.
Evidence patience_lost() {
  Evidence evidence{.rank = 1,
                    .now = kNow,
                    .failure = {.rank = 1, .timeout = true, .unheard = -1, .text = "rank 1 failed: waited"},
                    .status = waits(),
                    .peers = std::vector<Peer>(4)};
  for (Peer& peer : evidence.peers) {
    peer.heard = kNow;
    peer.status = waits();
    peer.stopped = true;
  }
  return evidence;
}

TEST(Verdict, NamesTheRankThatDoesNotAnswer) {
  Evidence evidence = patience_lost();
  evidence.peers[2].stopped = false;
  evidence.peers[2].heard = kNow - seconds(30);
  const Verdict verdict = find_culprit(evidence);
  EXPECT_EQ(verdict.culprit, 2);
  EXPECT_THAT(verdict.text, HasSubstr("does not answer, last heard 30.0 s ago"));
}

// One that died takes along another, which can no longer answer either.
TEST(Verdict, OfSeveralSilentRanksNamesTheFirstThatFellSilent) {
  Evidence evidence = patience_lost();
  evidence.peers[2].stopped = evidence.peers[3].stopped = false;
  evidence.peers[2].heard = kNow - seconds(4);
  evidence.peers[3].heard = kNow - seconds(5);
  const Verdict verdict = find_culprit(evidence);
  EXPECT_EQ(verdict.culprit, 3);
  EXPECT_THAT(verdict.text,
              HasSubstr("rank 3 does not answer, last heard 5.0 s ago, nor does rank 2 (4.0 s)"));
  EXPECT_THAT(verdict.silent, ElementsAre(3, 2));
  // The launcher must have noticed the last of them too.
  EXPECT_DOUBLE_EQ(verdict.silent_s, 4);
}

TEST(Verdict, ASilentRankThatWaitedForAnotherSilentOneIsNotNamed) {
  Evidence evidence = patience_lost();
  evidence.peers[0].stopped = evidence.peers[3].stopped = false;
  evidence.peers[0].heard = kNow - seconds(5);
  evidence.peers[0].status.waiting_on = 3;
  evidence.peers[3].heard = kNow - seconds(4);
  EXPECT_EQ(find_culprit(evidence).culprit, 3);
  evidence.peers[3].status.waiting_on = 0;  // both did: then it says nothing
  EXPECT_EQ(find_culprit(evidence).culprit, 0);
  evidence.peers[3].status.waiting_on = 2;  // which answers
  EXPECT_EQ(find_culprit(evidence).culprit, 3);
}

TEST(Verdict, NamesTheFirstOfRanksThatFellSilentTogether) {
  Evidence evidence = patience_lost();
  evidence.peers.resize(20);
  for (std::size_t r = 2; r < 20; ++r)
    evidence.peers[r] = {.heard = kNow - seconds(3), .status = waits(), .finished = {}};
  const Verdict verdict = find_culprit(evidence);
  EXPECT_EQ(verdict.culprit, 2);
  EXPECT_THAT(verdict.text, HasSubstr("nor do ranks 3 (3.0 s), 4 (3.0 s)"));
  EXPECT_THAT(verdict.text, HasSubstr("9 (3.0 s) and 10 more: stopped"));
}

TEST(Verdict, NamesItselfWhereNobodyAnswers) {
  Evidence evidence = patience_lost();
  for (Peer& peer : evidence.peers) peer.stopped = false;
  EXPECT_EQ(find_culprit(evidence).culprit, 1);
}

// A rank that was stopped and wakes up: the others have given it up, and some have left already.
TEST(Verdict, ARankThatWakesUpAmongThoseThatGaveItUpNamesItself) {
  Evidence evidence = patience_lost();
  evidence.failure = {.rank = 0, .timeout = true, .unheard = 1, .text = "rank 0 failed: nothing of rank 1"};
  evidence.peers[2].stopped = false;
  evidence.peers[2].heard = kNow - std::chrono::milliseconds(500);
  const Verdict verdict = find_culprit(evidence);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 itself was not heard by rank 0 in time"));
  EXPECT_THAT(verdict.silent, testing::IsEmpty());
  EXPECT_DOUBLE_EQ(verdict.silent_s, 0.5);  // it must not wait for rank 2 to leave together
  evidence.failure.unheard = 2;             // not this one was given up
  EXPECT_EQ(find_culprit(evidence).culprit, 2);
}

// Either could be cut off; the other one is more likely to be gone than this one.
TEST(Verdict, OfTwoRanksNamesTheOther) {
  Evidence evidence = patience_lost();
  evidence.peers.resize(2);
  evidence.peers[0].stopped = false;
  EXPECT_EQ(find_culprit(evidence).culprit, 0);
}

TEST(Verdict, ARankThatFinishedNeedNotAnswer) {
  Evidence evidence = patience_lost();
  evidence.peers[2].stopped = false;
  evidence.peers[2].finished = Account{};
  evidence.peers[2].status = {};
  EXPECT_EQ(find_culprit(evidence).culprit, -1);
}

TEST(Verdict, NamesTheRankThatFailedOfItsOwnAccord) {
  Evidence evidence = patience_lost();
  evidence.failure = {.rank = 3, .timeout = false, .unheard = -1, .text = "rank 3 failed: out of memory"};
  evidence.peers[2].status.waiting = 0;  // it computes, as it should
  const Verdict verdict = find_culprit(evidence);
  EXPECT_EQ(verdict.culprit, 3);
  EXPECT_EQ(verdict.text, "rank 3 failed: out of memory");
}

TEST(Verdict, NamesTheRankThatWasNotHeardThoughItAnswersNow) {
  Evidence evidence = patience_lost();
  evidence.failure.unheard = 3;
  EXPECT_EQ(find_culprit(evidence).culprit, 3);
}

TEST(Verdict, NamesTheRankThatWaitsForNobody) {
  Evidence evidence = patience_lost();
  evidence.peers[3].status.waiting = 0;
  EXPECT_EQ(find_culprit(evidence).culprit, 3);
  evidence = patience_lost();
  evidence.status.waiting = 0;
  EXPECT_EQ(find_culprit(evidence).culprit, 1);
}

TEST(Verdict, NamesNobodyWhereAllWait) {
  const Verdict verdict = find_culprit(patience_lost());
  EXPECT_EQ(verdict.culprit, -1);
  EXPECT_THAT(verdict.text, HasSubstr("lost on its way"));
}

}  // namespace
}  // namespace kvring::wire
