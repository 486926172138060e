#include "cli/team.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

namespace kvring::cli {
namespace {

Outcome failure(ErrorCode code, const std::string& message) { return {true, code, message}; }

// The message of the error that `outcomes` add up to, with its kind; empty for none.
std::string root_cause(const std::vector<Outcome>& outcomes) {
  try {
    throw_root_cause(outcomes);
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
  return {};
}

TEST(RootCause, IsNotTheEcho) {
  const Outcome echo = failure(ErrorCode::kTransport, "rank 2 failed: disk on fire");
  EXPECT_EQ(root_cause({echo, echo, failure(ErrorCode::kInputFile, "disk on fire")}),
            "InputFile: rank 2: disk on fire");
  EXPECT_EQ(root_cause({echo, {}, {}}), "Transport: rank 2 failed: disk on fire");
}

TEST(RootCause, IsThatOfTheLowestRank) {
  EXPECT_EQ(
      root_cause({failure(ErrorCode::kTransport, "ranks disagree"), failure(ErrorCode::kInputFile, "late")}),
      "Transport: ranks disagree");
  const Outcome missing = failure(ErrorCode::kInputFile, "no file");
  EXPECT_EQ(root_cause({missing, missing, missing}), "InputFile: no file");
  EXPECT_EQ(root_cause({{}, failure(ErrorCode::kTimeout, "rank 1 waited 3.0 s"), {}}),
            "Timeout: rank 1 waited 3.0 s");
  EXPECT_EQ(root_cause({{}, {}}), "");
}

TEST(InprocTeam, OneFailureEndsAllAndEachIsReleased) {
  const std::unique_ptr<Team> team = make_inproc_team(4, 20);
  std::atomic<int> released = 0;
  std::array<std::string, 4> failures;
  try {
    team->run({[] {},
               [](Transport& end) {
                 if (end.rank() == 3) throw InputFile("disk on fire");
                 end.barrier("the others");
               },
               [&](Transport& end, const std::string& reason) { failures[end.rank()] = reason; },
               [&](Transport&) { ++released; }});
    FAIL();
  } catch (const InputFile& error) {
    EXPECT_STREQ(error.what(), "rank 3: disk on fire");
  }
  EXPECT_EQ(released, 4);
  EXPECT_EQ(failures[3], "disk on fire");
  EXPECT_EQ(failures[0], "rank 3 failed: disk on fire");
}

TEST(InprocTeam, NothingRunsWhenThePreparationFails) {
  const std::unique_ptr<Team> team = make_inproc_team(2, 20);
  const auto unreachable = [](Transport&) { ADD_FAILURE(); };
  EXPECT_THROW(team->run({[] { throw InvalidArgument("no"); }, unreachable, {}, unreachable}),
               InvalidArgument);
}

}  // namespace
}  // namespace kvring::cli
