#include "io/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "io/npy.h"
#include "io/test_support.h"

namespace kvring {
namespace {

using Shape = std::array<std::int64_t, 4>;

TEST(TensorFile, ReadsRunsOfRows) {
  for (const auto& [name, dtype] : {std::pair("f32.npy", DType::kF32), std::pair("bf16.npy", DType::kBF16),
                                    std::pair("f16.npy", DType::kF16)}) {
    const InputTensor q = TensorFile(data_file(name)).tensor("q");
    EXPECT_EQ(q.shape(), (Shape{2, 3, 2, 4}));
    EXPECT_EQ(q.dtype(), dtype);
    EXPECT_TRUE(q.has_batch());
    std::string rows(2 * 8 * dtype_bytes(dtype), '\0');
    q.read_rows(1, {1, 3}, rows.data());
    EXPECT_EQ(rows, ramp_bytes(dtype, 24 + 8, 16));
    q.read_rows(0, {3, 3}, nullptr);  // no rows, no access
  }
}

TEST(TensorFile, ReadsShardsOfAllBatchEntries) {
  const TensorFile file(data_file("mixed.safetensors"));
  const InputTensor q = file.tensor("q");
  std::vector<float> local(2 * 2 * 2 * 4);
  q.read_shard(Shard({{0, 1}, {2, 3}}), dense_view<void>(local.data(), DType::kF32, {2, 2, 2, 4}));
  for (std::int64_t i = 0; i < 32; ++i) {
    const std::int64_t b = i / 16, row = i / 8 % 2, rest = i % 8;
    EXPECT_EQ(local[static_cast<std::size_t>(i)], ramp((b * 3 + row * 2) * 8 + rest)) << i;
  }
  const Shard nothing;
  q.read_shard(nothing, dense_view<void>(nullptr, DType::kF32, {2, 0, 2, 4}));
}

// Every 4 KiB that a long tensor begins and ends with, and samples between; all of a short one.
TEST(TensorFile, FingerprintTellsTensorsApart) {
  const auto fingerprint = [](std::size_t elements, std::size_t changed) {
    std::string text = npy_header({"q", DType::kF32, {1, static_cast<std::int64_t>(elements), 1, 1}});
    std::vector<float> values(elements, 1);
    if (changed < elements) values[changed] = 2;
    text.append(reinterpret_cast<const char*>(values.data()), elements * sizeof(float));
    const TempDir directory;
    write_bytes(directory.file("q.npy"), text);
    return TensorFile(directory.file("q.npy")).tensor("q").fingerprint();
  };
  constexpr std::size_t kShort = 66 * 1024, kLong = 10 * kShort, kSame = ~std::size_t{0};
  for (const std::size_t changed : {std::size_t{0}, kShort / 3, kShort - 1})
    EXPECT_NE(fingerprint(kShort, changed), fingerprint(kShort, kSame));
  for (const std::size_t changed : {std::size_t{0}, std::size_t{1023}, kLong - 1024, kLong - 1})
    EXPECT_NE(fingerprint(kLong, changed), fingerprint(kLong, kSame));
  EXPECT_EQ(fingerprint(kLong, 1024), fingerprint(kLong, kSame));  // between two samples
}

TEST(TensorFile, TakesThreeDimensionsAsBatchOne) {
  const InputTensor k = TensorFile(data_file("mixed.safetensors")).tensor("k");
  EXPECT_EQ(k.shape(), (Shape{1, 3, 2, 4}));
  EXPECT_FALSE(k.has_batch());
  std::string rows(8 * 2, '\0');
  k.read_rows(0, {2, 3}, rows.data());
  EXPECT_EQ(rows, ramp_bytes(DType::kBF16, 16, 8));
}

TEST(TensorFile, ReadsSmallTensorsWhole) {
  EXPECT_EQ(TensorFile(data_file("sinks.npy")).read_f32("sinks", {2}), (std::vector<float>{-1.75f, -1.5f}));
  const TensorFile result(data_file("result.safetensors"));
  EXPECT_EQ(result.read_f32("lse", {2, 2, 3}).back(), 1.0f);
  EXPECT_EQ(TensorFile(data_file("f32_no_batch.npy")).read_f32("lse", {1, 3, 2, 4}).size(), 24u);
  const std::string path = data_file("result.safetensors");
  expect_error(ErrorCode::kInputFile, {path, "'lse'", "(2, 2, 3)", "expected f32 of shape (2, 3, 2)"}, [&] {
    result.read_f32("lse", {2, 3, 2});
  });
  expect_error(ErrorCode::kInputFile, {"'out'", "bf16", "expected f32"}, [&] {
    result.read_f32("out", {2, 3, 2, 4});
  });
}

TEST(TensorFile, NamesWhatItCannotGive) {
  const std::string path = data_file("mixed.safetensors");
  const TensorFile file(path);
  expect_error(ErrorCode::kInputFile, {path, "no tensor 'Q'", "'k', 'q', 'tokens', 'v'"},
               [&] { file.tensor("Q"); });
  expect_error(ErrorCode::kInputFile, {path, "'tokens'", "'I64'", "expected F32"},
               [&] { file.tensor("tokens"); });
  expect_error(ErrorCode::kInputFile, {"'lse'", "(2, 2, 3, ", "expected"}, [&] {
    const TempDir dir;
    write_bytes(dir.file("x.npy"), npy_header({"x", DType::kF32, {2, 2, 3, 0, 1}}));
    TensorFile(dir.file("x.npy")).tensor("lse");
  });
}

TEST(TensorFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  const auto open = [&](const std::string& path) { return [path] { TensorFile file(path); }; };
  expect_error(ErrorCode::kInputFile, {dir.file("no.npy"), "No such file"}, open(dir.file("no.npy")));
  expect_error(ErrorCode::kInvalidArgument, {"x.bin", ".npy or .safetensors"}, open(dir.file("x.bin")));
  expect_error(ErrorCode::kInvalidArgument, {"(empty path)"}, open(""));
  std::filesystem::create_directory(dir.file("d.npy"));
  expect_error(ErrorCode::kInputFile, {"d.npy", "is a directory"}, open(dir.file("d.npy")));
  ASSERT_EQ(::mkfifo(dir.file("p.safetensors").c_str(), 0600), 0);
  expect_error(ErrorCode::kInputFile, {"p.safetensors", "pipe"}, open(dir.file("p.safetensors")));
  write_bytes(dir.file("e.safetensors"), "");
  expect_error(ErrorCode::kInputFile, {"e.safetensors", "truncated"}, open(dir.file("e.safetensors")));
}

TEST(InputTensor, RefusesPositionsOutside) {
  const InputTensor q = TensorFile(data_file("f32.npy")).tensor("q");
  for (const auto& [batch, range] :
       {std::pair<std::int64_t, Range>(2, {0, 1}), {-1, {0, 1}}, {0, {-1, 1}}, {0, {2, 4}}, {0, {2, 1}}}) {
    expect_error(ErrorCode::kInvalidArgument, {"'q'", "outside its shape (2, 3, 2, 4)"},
                 [&, b = batch, r = range] { q.read_rows(b, r, nullptr); });
  }
  std::vector<float> local(64);
  expect_error(ErrorCode::kInvalidArgument, {"'q'", "expected dense f32 of shape (2, 1, 2, 4)"}, [&] {
    q.read_shard(Shard({{0, 1}}), dense_view<void>(local.data(), DType::kF32, {2, 2, 2, 4}));
  });
  expect_error(ErrorCode::kInvalidArgument, {"is bf16"}, [&] {
    q.read_shard(Shard({{0, 1}}), dense_view<void>(local.data(), DType::kBF16, {2, 1, 2, 4}));
  });
  TensorView strided = dense_view<void>(local.data(), DType::kF32, {2, 1, 2, 4});
  strided.stride[2] = 5;
  expect_error(ErrorCode::kInvalidArgument, {"dense"}, [&] { q.read_shard(Shard({{0, 1}}), strided); });
}

TEST(InputTensor, ReportsAFileThatShrinks) {
  const TempDir dir;
  const std::string path = dir.file("q.npy");
  write_bytes(path, read_bytes(data_file("f32.npy")));
  const InputTensor q = TensorFile(path).tensor("q");
  std::filesystem::resize_file(path, 200);
  std::vector<float> rows(24);
  expect_error(ErrorCode::kInputFile, {path, "ends before byte 320"}, [&] {
    q.read_rows(1, {0, 3}, rows.data());
  });
}

// 12 GiB that occupy one page: offsets past 2^31 and 2^32 must not wrap.
TEST(InputTensor, ReadsPastFourGiBOfASparseFile) {
  const TempDir dir;
  const std::string path = dir.file("q.npy");
  const std::int64_t tokens = (std::int64_t{3} << 30) / 8;
  const std::string header = npy_header({"q", DType::kF32, {tokens, 2, 4}});
  const std::int64_t bytes = static_cast<std::int64_t>(header.size()) + tokens * 32;
  write_bytes(path, header);
  if (::truncate(path.c_str(), bytes) != 0) GTEST_SKIP() << "no sparse files of 12 GiB here";
  const int fd = ::open(path.c_str(), O_WRONLY);
  const std::string last = ramp_bytes(DType::kF32, 0, 8);
  ASSERT_EQ(::pwrite(fd, last.data(), 32, bytes - 32), 32);
  ::close(fd);
  const InputTensor q = TensorFile(path).tensor("q");
  std::string rows(64, 'x');
  q.read_rows(0, {tokens - 2, tokens}, rows.data());
  EXPECT_EQ(rows, std::string(32, '\0') + last);
}

}  // namespace
}  // namespace kvring
