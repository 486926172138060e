#include "cli/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvring/error.h"

namespace kvring::cli {
namespace {

RecordedOperation pending(const char* what, int step, int peer) {
  return {.what = what, .step = step, .peer = peer, .done = false};
}

Record record_of(int rank, std::vector<RecordedOperation> operations, std::optional<int> culprit = {}) {
  return {.rank = rank,
          .ranks = 4,
          .host = "node",
          .reason = "",
          .verdict = "because",
          .culprit = culprit,
          .silent = {},
          .operations = std::move(operations)};
}

TEST(Diagnose, FollowsTheRecordsThatAgree) {
  const Diagnosis found =
      diagnose({record_of(0, {pending("receive", 3, 3)}, 2), record_of(1, {pending("send", 2, 2)}, 2),
                record_of(3, {pending("receive", 2, 2)}, 2)});
  EXPECT_EQ(found.culprit, 2);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.reason, "3 of 3 records blame it: because");
  EXPECT_THAT(found.without_record, testing::ElementsAre(2));
}

// Nobody blames anybody; rank 0 waits for rank 3, which waits for rank 2, to which rank 1 cannot send.
TEST(Diagnose, FindsWherePendingSendAndReceiveMeet) {
  const Diagnosis found =
      diagnose({record_of(0, {pending("receive", 3, 3)}), record_of(1, {pending("send", 2, 2)}),
                record_of(2, {}), record_of(3, {pending("receive", 2, 2)})});
  EXPECT_EQ(found.culprit, 2);
  EXPECT_EQ(found.step, 1);
}

TEST(Diagnose, OneThatIsCutOffBlamesItself) {
  const Diagnosis found =
      diagnose({record_of(0, {}, 2), record_of(1, {}, 2), record_of(2, {}, 2), record_of(3, {}, 2)});
  EXPECT_EQ(found.culprit, 2);
}

// Rank 0 died; rank 3 could not answer the others any more, and is taken for it, but it was there to say so.
TEST(Diagnose, TellsARankThatIsGoneFromOneThatOnlyDidNotAnswer) {
  Record one = record_of(1, {pending("receive", 2, 0)}, 3);
  Record two = record_of(2, {}, 3);
  Record three = record_of(3, {pending("send", 2, 0)}, 0);
  one.silent = two.silent = {3, 0};
  three.silent = {0};
  const Diagnosis found = diagnose({one, two, three});
  EXPECT_EQ(found.culprit, 0);
  EXPECT_EQ(found.step, 1);
}

TEST(Diagnose, OfTwoThatAreGoneTakesTheOneThatIsBlamed) {
  Record one = record_of(1, {}, 3);
  Record two = record_of(2, {}, 3);
  one.silent = two.silent = {3, 0};
  EXPECT_EQ(diagnose({one, two}).culprit, 3);
}

// A rank that fails while it packs, attends or finishes leaves that under way.
TEST(Diagnose, WorkUnderWayIsNoTransfer) {
  const Record record = record_of(1, {pending("pack", 0, -1), pending("receive", 2, 3)});
  EXPECT_EQ(waiting_text(record), "receive of block 0 for step 2 from rank 3");
}

TEST(Diagnose, DoesNotGuess) {
  EXPECT_EQ(diagnose({record_of(0, {}), record_of(1, {}), record_of(2, {}), record_of(3, {})}).culprit,
            std::nullopt);
  EXPECT_EQ(diagnose({record_of(0, {}, 1), record_of(1, {}, 0), record_of(2, {}), record_of(3, {})}).culprit,
            std::nullopt);
}

TEST(Diagnose, RefusesRecordsThatDoNotBelongTogether) {
  EXPECT_THROW(check_records({record_of(1, {}), record_of(1, {})}), InputFile);
  Record other = record_of(2, {});
  other.ranks = 5;
  EXPECT_THROW(check_records({record_of(1, {}), other}), InputFile);
}

}  // namespace
}  // namespace kvring::cli
