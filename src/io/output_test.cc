#include "io/output.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "io/input.h"
#include "io/npy.h"
#include "io/test_support.h"

namespace kvring {
namespace {

// The result of a small problem: out (2, 11, 3, 5) and lse (2, 3, 11), values of ramp().
constexpr std::int64_t kBatch = 2, kTokens = 11, kHeads = 3, kDim = 5;

std::vector<TensorSpec> result_of(DType dtype) {
  return {{"out", dtype, {kBatch, kTokens, kHeads, kDim}}, {"lse", DType::kF32, {kBatch, kHeads, kTokens}}};
}

// Writes one shard's part of both tensors from local ones with padded strides.
void write_part(OutputFile& output, const Shard& shard, DType dtype) {
  const std::int64_t n = shard.tokens(), row = kDim + 2, token = kHeads * row + 1;
  std::vector<float> out(static_cast<std::size_t>(kBatch * n * token + 1));
  TensorView o{out.data(), dtype, {kBatch, n, kHeads, kDim}, {n * token, token, row, 1}};
  std::vector<float> values(static_cast<std::size_t>(kBatch * n * kHeads * 2 + 1));
  LseView lse{values.data(), {kBatch, kHeads, n}, {n * kHeads * 2, 2, kHeads * 2}};  // (batch, tokens, heads)
  std::int64_t local = 0;
  for (const Range& range : shard.ranges()) {
    for (std::int64_t s = range.begin; s < range.end; ++s, ++local) {
      for (std::int64_t b = 0; b < kBatch; ++b) {
        for (std::int64_t h = 0; h < kHeads; ++h) {
          for (std::int64_t d = 0; d < kDim; ++d)
            store_element(o.data, dtype, o.offset(b, local, h) + d,
                          ramp(((b * kTokens + s) * kHeads + h) * kDim + d));
          lse.data[lse.offset(b, h, local)] = static_cast<float>(ramp((b * kHeads + h) * kTokens + s));
        }
      }
    }
  }
  output.write_shard("out", shard, as_const(o));
  output.write_lse_shard("lse", shard, lse);
}

// Every shard by a writer of its own; the first one creates the file.
std::string written_by(const std::vector<Shard>& shards, DType dtype) {
  const TempDir dir;
  const std::string path = dir.file("o.safetensors");
  std::vector<OutputFile> writers;
  writers.push_back(OutputFile::create(path, result_of(dtype)));
  for (std::size_t r = 1; r < shards.size(); ++r)
    writers.push_back(OutputFile::open_existing(path, writers[0].temp_path(), result_of(dtype)));
  for (std::size_t r = shards.size(); r-- > 0;) {
    write_part(writers[r], shards[r], dtype);
    EXPECT_FALSE(std::filesystem::exists(path));
    writers[r].commit();
  }
  EXPECT_EQ(dir.names(), std::vector<std::string>{"o.safetensors"});
  return read_bytes(path);
}

TEST(OutputFile, SameBytesWhoeverWrites) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::string one = written_by({Shard({{0, kTokens}})}, dtype);
    const std::string lse = ramp_bytes(DType::kF32, 0, 66), out = ramp_bytes(dtype, 0, 330);
    EXPECT_TRUE(one.ends_with(dtype == DType::kF32 ? out + lse : lse + out));
    EXPECT_EQ(one, written_by({Shard({{0, 2}, {9, 11}}), Shard({{2, 9}})}, dtype));
    EXPECT_EQ(one, written_by({Shard({{1, 2}, {0, 1}}), Shard({{4, 11}}), Shard(), Shard({{2, 4}})}, dtype));
    std::vector<Shard> tokens;
    for (std::int64_t s = 0; s < kTokens; ++s) tokens.push_back(Shard({{s, s + 1}}));
    EXPECT_EQ(one, written_by(tokens, dtype));
  }
}

TEST(OutputFile, ReadsBack) {
  const TempDir dir;
  const std::string path = dir.file("o.safetensors");
  OutputFile output = OutputFile::create(path, result_of(DType::kBF16));
  write_part(output, Shard({{0, kTokens}}), DType::kBF16);
  output.commit();
  const TensorFile file(path);
  std::string row(kHeads * kDim * 2, '\0');
  file.tensor("out").read_rows(1, {10, 11}, row.data());
  EXPECT_EQ(row, ramp_bytes(DType::kBF16, 21 * 15, 15));
  EXPECT_EQ(file.read_f32("lse", {kBatch, kHeads, kTokens}).back(), static_cast<float>(ramp(65)));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_NE(status.st_mode & S_IRUSR, 0u);
}

TEST(OutputFile, WritesOneTensorPerNpyFile) {
  const TempDir dir;
  const TensorSpec no_batch{"out", DType::kF16, {kTokens, kHeads, kDim}};
  OutputFile output = OutputFile::create(dir.file("o.npy"), {no_batch});
  std::string local = ramp_bytes(DType::kF16, 0, 165);
  output.write_shard("out", Shard({{0, kTokens}}),
                     dense_view<const void>(local.data(), DType::kF16, {1, 11, 3, 5}));
  output.commit();
  EXPECT_EQ(read_bytes(dir.file("o.npy")), npy_header(no_batch) + local);
  expect_error(ErrorCode::kInvalidArgument, {"o.npy", "one tensor, not 2", ".safetensors"},
               [&] { OutputFile::create(dir.file("o.npy"), result_of(DType::kF32)); });
}

// Rows that do not fit the gathering buffer are written in several pieces.
TEST(OutputFile, WritesShardsLongerThanTheBuffer) {
  const TempDir dir;
  const std::int64_t tokens = 300'001;
  std::vector<float> values(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  OutputFile output = OutputFile::create(
      dir.file("o.safetensors"), {{"out", DType::kF32, {tokens, 1, 1}}, {"lse", DType::kF32, {1, tokens}}});
  const Shard all({{0, tokens}});
  output.write_shard("out", all, dense_view<const void>(values.data(), DType::kF32, {1, tokens, 1, 1}));
  output.write_lse_shard("lse", all, dense_lse_view(values.data(), {1, 1, tokens}));
  output.commit();
  const TensorFile file(dir.file("o.safetensors"));
  EXPECT_EQ(file.read_f32("lse", {1, tokens}), values);
  EXPECT_EQ(file.read_f32("out", {tokens, 1, 1}), values);
}

TEST(OutputFile, ReplacesOnlyAtCommit) {
  const TempDir dir;
  const std::string path = dir.file("o.npy"), link = dir.file("link.npy");
  write_bytes(path, "old");
  std::filesystem::create_symlink("o.npy", link);
  const TensorSpec tensor{"out", DType::kF32, {1, 1, 2}};
  {
    OutputFile dropped = OutputFile::create(path, {tensor});
    OutputFile moved = std::move(dropped);
    EXPECT_TRUE(std::filesystem::exists(moved.temp_path()));
  }
  EXPECT_EQ(read_bytes(path), "old");
  EXPECT_EQ(dir.names().size(), 2u);  // no temporary file
  OutputFile output = OutputFile::create(link, {tensor});
  const float values[2] = {1, 2};
  output.write_elements("out", 0, 2, values);
  EXPECT_EQ(read_bytes(path), "old");
  output.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_bytes(path).size(), 136u);
  EXPECT_EQ(dir.names().size(), 2u);
}

TEST(OutputFile, RefusesPathsThatCannotWork) {
  const TempDir dir;
  const auto create = [](const std::string& path) {
    return [path] { OutputFile::create(path, {{"out", DType::kF32, {1, 1, 1}}}); };
  };
  expect_error(ErrorCode::kInvalidArgument, {"o.bin", ".npy or .safetensors"}, create(dir.file("o.bin")));
  expect_error(ErrorCode::kInvalidArgument, {dir.file("no"), "does not exist", "create it first"},
               create(dir.file("no/o.npy")));
  std::filesystem::create_directory(dir.file("d.npy"));
  expect_error(ErrorCode::kInvalidArgument, {"d.npy", "is a directory"}, create(dir.file("d.npy")));
  ASSERT_EQ(::mkfifo(dir.file("p.npy").c_str(), 0600), 0);
  expect_error(ErrorCode::kInvalidArgument, {"p.npy", "pipe"}, create(dir.file("p.npy")));
  write_bytes(dir.file("file"), "");
  expect_error(ErrorCode::kInvalidArgument, {"file", "does not exist"}, create(dir.file("file/o.npy")));
  // Not even root may create files there.
  if (std::filesystem::exists("/sys/kernel"))
    expect_error(ErrorCode::kInvalidArgument, {"/sys/kernel/o.npy", "cannot create"},
                 create("/sys/kernel/o.npy"));
  EXPECT_EQ(dir.names().size(), 3u);
}

TEST(OutputFile, TakesTheLongestNames) {
  const TempDir dir;
  const std::string path = dir.file(std::string(251, 'n') + ".npy");
  OutputFile::create(path, {{"out", DType::kF32, {0, 1, 1}}}).commit();
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(OutputFile, RefusesPartsThatDoNotFit) {
  const TempDir dir;
  OutputFile output = OutputFile::create(dir.file("o.safetensors"), result_of(DType::kF32));
  std::vector<float> data(1000);
  const auto view = [&](DType dtype, std::array<std::int64_t, 4> shape) {
    return dense_view<const void>(data.data(), dtype, shape);
  };
  const auto bad = [](const std::vector<std::string>& parts, const std::function<void()>& call) {
    expect_error(ErrorCode::kInvalidArgument, parts, call);
  };
  const Shard two({{9, 11}});
  bad({"no tensor 'O'"}, [&] { output.write_shard("O", two, view(DType::kF32, {2, 2, 3, 5})); });
  bad({"'out'", "bf16"}, [&] { output.write_shard("out", two, view(DType::kBF16, {2, 2, 3, 5})); });
  bad({"'out'", "(2, 3, 3, 5)"}, [&] { output.write_shard("out", two, view(DType::kF32, {2, 3, 3, 5})); });
  bad({"'lse'", "(2, 2, 3, 5)"}, [&] { output.write_shard("lse", two, view(DType::kF32, {2, 2, 3, 5})); });
  bad({"[9, 12)", "11 tokens"}, [&] {
    output.write_shard("out", Shard({{9, 12}}), view(DType::kF32, {2, 3, 3, 5}));
  });
  bad({"'lse'", "(2, 2, 3)"}, [&] {
    output.write_lse_shard("lse", two, dense_lse_view(data.data(), {2, 2, 3}));
  });
  bad({"outside its 330"}, [&] { output.write_elements("out", 320, 11, data.data()); });
  bad({"outside its 330"}, [&] { output.write_elements("out", -1, 1, data.data()); });
}

TEST(OutputFile, RefusesToJoinAnotherFile) {
  const TempDir dir;
  const std::string path = dir.file("o.safetensors");
  OutputFile output = OutputFile::create(path, result_of(DType::kF32));
  expect_error(ErrorCode::kInputFile, {path, "other tensors"},
               [&] { OutputFile::open_existing(path, output.temp_path(), result_of(DType::kBF16)); });
  auto swapped = result_of(DType::kF32);
  std::swap(swapped[0], swapped[1]);  // the same size
  expect_error(ErrorCode::kInputFile, {path, "other tensors"},
               [&] { OutputFile::open_existing(path, output.temp_path(), swapped); });
  expect_error(ErrorCode::kInputFile, {"nowhere", "No such file"},
               [&] { OutputFile::open_existing(path, dir.file("nowhere"), result_of(DType::kF32)); });
}

TEST(OutputFile, FileSizeLimitIsAnErrorNotASignal) {
  const TempDir dir;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorCode::kInputFile, {"o.safetensors", "needs 1728 bytes", "1000"},
               [&] { OutputFile::create(dir.file("o.safetensors"), result_of(DType::kF32)); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(dir.names().empty());
}

// A mount that is gone after the test.
struct SmallDisk {
  explicit SmallDisk(const std::string& at) : path(at) {
    std::filesystem::create_directory(path);
    mounted = ::mount("kvring", path.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  ~SmallDisk() {
    if (mounted) ::umount(path.c_str());
  }
  std::string path;
  bool mounted = false;
};

TEST(OutputFile, FullDiskShowsAtCreation) {
  const TempDir dir;
  const SmallDisk disk(dir.file("disk"));
  if (!disk.mounted) GTEST_SKIP() << "needs the right to mount a tmpfs";
  expect_error(ErrorCode::kInputFile, {"o.npy", "reserve the 400128 bytes", "No space left"}, [&] {
    OutputFile::create(disk.path + "/o.npy", {{"out", DType::kF32, {100'000, 1, 1}}});
  });
  EXPECT_TRUE(std::filesystem::is_empty(disk.path));
}

}  // namespace
}  // namespace kvring
