#include "cli/suggest.h"

#include <gtest/gtest.h>

namespace kvring::cli {
namespace {

const std::vector<std::string> kFlags = {"--layout", "--lse", "--ranks", "--rank-memory"};

TEST(Suggest, NamesTheNearestWord) {
  EXPECT_EQ(did_you_mean("--layot", kFlags), "; did you mean --layout?");
  EXPECT_EQ(did_you_mean("--rank", kFlags), "; did you mean --ranks?");
  EXPECT_EQ(did_you_mean("--rnak-memory", kFlags), "; did you mean --rank-memory?");
  EXPECT_EQ(did_you_mean("--layout", kFlags), "; did you mean --layout?");
}

TEST(Suggest, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("--colour", kFlags), "");
  EXPECT_EQ(did_you_mean("x", kFlags), "");
  EXPECT_EQ(did_you_mean("", kFlags), "");
  EXPECT_EQ(did_you_mean("--layot", {}), "");
}

}  // namespace
}  // namespace kvring::cli
