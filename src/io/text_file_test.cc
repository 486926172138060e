#include "io/text_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "io/test_support.h"
#include "kvring/error.h"

namespace kvring {
namespace {

namespace fs = std::filesystem;

class TextFile : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(testing::TempDir()) / "kvring_text_file";
    fs::remove_all(directory_);
    fs::create_directory(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  int entries() const {
    return static_cast<int>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }
  fs::path directory_;
};

TEST_F(TextFile, ReplacesTheOldOneAndLeavesNothingElse) {
  const std::string path = directory_ / "a.svg";
  write_text_file(path, "first, a longer text");
  write_text_file(path, "second");
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "second");
  EXPECT_EQ(entries(), 1);
}

TEST_F(TextFile, SaysWhatIsWrongAndLeavesNothing) {
  for (const std::string& path : {(directory_ / "none" / "a.svg").string(), directory_.string()}) {
    try {
      write_text_file(path, "text");
      FAIL() << path;
    } catch (const InputFile& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(path));
    }
  }
  EXPECT_EQ(entries(), 0);
}

}  // namespace
}  // namespace kvring
