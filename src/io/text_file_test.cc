#include "io/text_file.h"

#include "io/test_support.h"

namespace kvring {
namespace {

TEST(TextFile, ReplacesTheOldOneOnlyWhenComplete) {
  const TempDir dir;
  write_bytes(dir.file("a"), "old");
  const std::string part(50000, 'x');
  {
    TextFile file(dir.file("a"));
    for (int i = 0; i < 3; ++i) file.write(part);
    EXPECT_EQ(read_bytes(dir.file("a")), "old");
    EXPECT_EQ(dir.names().size(), 2u);
    file.commit();
  }
  EXPECT_EQ(read_bytes(dir.file("a")), part + part + part);
  EXPECT_EQ(dir.names(), std::vector<std::string>{"a"});
}

TEST(TextFile, WritesAWholeOneAtOnce) {
  const TempDir dir;
  write_text_file(dir.file("a"), "first, a longer text");
  write_text_file(dir.file("a"), "second");
  EXPECT_EQ(read_bytes(dir.file("a")), "second");
  EXPECT_EQ(dir.names(), std::vector<std::string>{"a"});
}

TEST(TextFile, LeavesNothingWithoutACommit) {
  const TempDir dir;
  {
    TextFile file(dir.file("a"));
    file.write("half");
  }
  EXPECT_TRUE(dir.names().empty());
}

TEST(TextFile, FollowsALink) {
  const TempDir dir;
  write_bytes(dir.file("a"), "old");
  std::filesystem::create_symlink("a", dir.file("link"));
  TextFile file(dir.file("link"));
  file.write("new");
  file.commit();
  EXPECT_EQ(read_bytes(dir.file("a")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.file("link")));
}

TEST(TextFile, RefusesWhereNoFileCanBe) {
  const TempDir dir;
  EXPECT_THROW(TextFile(dir.file("")), InvalidArgument);
  EXPECT_THROW(TextFile(dir.file("none/a")), InvalidArgument);
  EXPECT_THROW(TextFile("/dev/null"), InvalidArgument);
  EXPECT_TRUE(dir.names().empty());
}

}  // namespace
}  // namespace kvring
