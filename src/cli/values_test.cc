#include "cli/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "kvring/error.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;

TEST(Values, WholeNumbers) {
  EXPECT_EQ(parse_integer("--seed", "-3"), -3);
  EXPECT_EQ(parse_integer("--seed", "9223372036854775807"), 9223372036854775807);
  for (const char* text : {"", "x", "3x", " 3", "3.5", "9223372036854775808", "0x10"})
    EXPECT_THROW(parse_integer("--seed", text), InvalidArgument) << text;
}

TEST(Values, RealNumbers) {
  EXPECT_EQ(parse_real("--softcap", "-1.5e3"), -1500);
  EXPECT_TRUE(std::isnan(parse_real("--softcap", "nan")));
  for (const char* text : {"", "x", "3x", " 3", "1,5"})
    EXPECT_THROW(parse_real("--softcap", text), InvalidArgument) << text;
}

TEST(Values, Bytes) {
  EXPECT_EQ(parse_bytes("--rank-memory", "512MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("--rank-memory", "1.5GiB"), std::int64_t{1536} << 20);
  EXPECT_EQ(parse_bytes("--rank-memory", "3KB"), 3000);
  EXPECT_EQ(parse_bytes("--rank-memory", "7"), 7);
  EXPECT_EQ(parse_bytes("--rank-memory", "7B"), 7);
  for (const char* text :
       {"", "MiB", "512Mib", "512 MiB", "-1", "0", "0.1", "1.2.3KB", "1e3", "99999999999GiB"})
    EXPECT_THROW(parse_bytes("--rank-memory", text), InvalidArgument) << text;
}

TEST(Values, Lists) {
  EXPECT_THAT(parse_list("--window", "-1,0"), ElementsAre(-1, 0));
  EXPECT_THAT(parse_list("--window", "5"), ElementsAre(5));
  for (const char* text : {"", ",", "1,", "1,,2", "1 2", "1,x"})
    EXPECT_THROW(parse_list("--window", text), InvalidArgument) << text;
}

TEST(Values, ListsFromAFile) {
  const auto path = std::filesystem::temp_directory_path() / ("kvring_list_" + std::to_string(::getpid()));
  std::ofstream(path) << "0, 5\n9\t12 ,\n 13\n";
  EXPECT_THAT(parse_list("--cu-seqlens-q", "@" + path.string()), ElementsAre(0, 5, 9, 12, 13));
  std::ofstream(path) << "0,,5";
  EXPECT_THROW(parse_list("--cu-seqlens-q", "@" + path.string()), InvalidArgument);
  std::ofstream(path) << "";
  EXPECT_THROW(parse_list("--cu-seqlens-q", "@" + path.string()), InvalidArgument);
  std::filesystem::remove(path);
  EXPECT_THROW(parse_list("--cu-seqlens-q", "@" + path.string()), InputFile);
  EXPECT_THROW(parse_list("--cu-seqlens-q", "@/"), InputFile);  // a directory
}

TEST(Values, ChoicesSuggest) {
  EXPECT_EQ(parse_choice("--cut", "tokens", {"tiles", "tokens"}), 1u);
  try {
    parse_choice("--cut", "tile", {"tiles", "tokens"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "--cut is 'tile'; it must be one of tiles, tokens; did you mean tiles?");
  }
}

TEST(Values, BytesForPeople) {
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(0x1p50), "1024.0 TiB");
}

}  // namespace
}  // namespace kvring::cli
