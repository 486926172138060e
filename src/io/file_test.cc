#include "io/file.h"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/test_support.h"

namespace kvring {
namespace {

// Moves bytes of a string three at a time, and is interrupted before each move.
TEST(TransferAll, SurvivesShortTransfersAndInterrupts) {
  const std::string from = "0123456789";
  std::string to(from.size(), ' ');
  int calls = 0;
  const auto done = transfer_all(
      [&](std::int64_t at, std::int64_t left) -> std::int64_t {
        if (calls++ % 2 == 0) {
          errno = EINTR;
          return -1;
        }
        const std::int64_t n = std::min<std::int64_t>(left, 3);
        from.copy(to.data() + at, static_cast<std::size_t>(n), static_cast<std::size_t>(at));
        return n;
      },
      static_cast<std::int64_t>(from.size()));
  EXPECT_EQ(done, 10);
  EXPECT_EQ(to, from);
  EXPECT_EQ(calls, 8);
}

TEST(TransferAll, StopsAtEndOfFileAndAtErrors) {
  EXPECT_EQ(transfer_all([](std::int64_t at, std::int64_t) -> std::int64_t { return at == 0 ? 4 : 0; }, 10),
            4);
  EXPECT_EQ(transfer_all(
                [](std::int64_t at, std::int64_t) -> std::int64_t {
                  errno = EIO;
                  return at == 0 ? 4 : -1;
                },
                10),
            4);
  EXPECT_EQ(errno, EIO);
}

TEST(ReadExactly, NamesTheByteThatIsMissing) {
  const TempDir dir;
  const std::string path = dir.file("f");
  write_bytes(path, "12345");
  const FileHandle file(::open(path.c_str(), O_RDONLY));
  char buffer[8];
  expect_error(ErrorCode::kInputFile, {path, "ends before byte 9"},
               [&] { read_exactly(file, path, buffer, 8, 1); });
}

TEST(WriteExactly, NamesTheCause) {
  const FileHandle full(::open("/dev/full", O_WRONLY));
  if (full.get() < 0) GTEST_SKIP() << "no /dev/full here";
  expect_error(ErrorCode::kInputFile, {"out.npy", "4 bytes at offset 64", "No space left"},
               [&] { write_exactly(full, "out.npy", "1234", 4, 64); });
}

}  // namespace
}  // namespace kvring
