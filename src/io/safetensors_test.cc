#include "io/safetensors.h"

#include <cstring>

#include "io/test_support.h"

namespace kvring {
namespace {

std::string safetensors(const std::string& json, const std::string& data = "") {
  const std::uint64_t length = json.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &length, 8);
  return head + json + data;
}

std::map<std::string, TensorInfo> parse(const std::string& file) {
  const auto bytes = static_cast<std::int64_t>(file.size());
  const std::string_view all = file;
  const auto header = safetensors_header_bytes(all.substr(0, kSafetensorsPrefixBytes), bytes, "F.st");
  return parse_safetensors(all.substr(0, static_cast<std::size_t>(header)), bytes, "F.st");
}

void expect_bad(const std::string& file, std::vector<std::string> parts) {
  parts.push_back("F.st");
  expect_error(ErrorCode::kInputFile, parts, [&] { parse(file); });
}

// A file with the tensor `q` as given and so many bytes of data.
void expect_bad_entry(const std::string& entry, std::size_t data, std::vector<std::string> parts) {
  parts.push_back("tensor 'q'");
  expect_bad(safetensors("{\"q\":" + entry + "}", std::string(data, 'x')), std::move(parts));
}

TEST(Safetensors, ReadsWhatTheFormatsLibraryWrites) {
  const std::string file = read_bytes(data_file("mixed.safetensors"));
  const auto tensors = parse(file);
  ASSERT_EQ(tensors.size(), 4u);
  const auto expect = [&](const char* name, DType dtype, const std::vector<std::int64_t>& shape,
                          std::int64_t elements) {
    const TensorInfo& info = tensors.at(name);
    EXPECT_EQ(info.dtype, dtype);
    EXPECT_EQ(info.shape, shape);
    EXPECT_EQ(file.substr(static_cast<std::size_t>(info.offset), static_cast<std::size_t>(info.bytes)),
              ramp_bytes(dtype, 0, elements));
  };
  expect("q", DType::kF32, {2, 3, 2, 4}, 48);
  expect("k", DType::kBF16, {3, 2, 4}, 24);
  expect("v", DType::kF16, {2, 3, 2, 4}, 48);
  EXPECT_EQ(tensors.at("tokens").dtype, std::nullopt);
  EXPECT_EQ(tensors.at("tokens").dtype_text, "I64");
}

TEST(Safetensors, WritesTheBytesThatTheFormatsLibraryWrites) {
  const std::string header =
      safetensors_header({{"out", DType::kBF16, {2, 3, 2, 4}}, {"lse", DType::kF32, {2, 2, 3}}});
  EXPECT_EQ(header + ramp_bytes(DType::kF32, 0, 12) + ramp_bytes(DType::kBF16, 0, 48),
            read_bytes(data_file("result.safetensors")));
}

TEST(Safetensors, ReadsEmptyTensorsAndPadding) {
  EXPECT_TRUE(parse(safetensors("{}   ")).empty());
  const auto tensors = parse(safetensors(R"({"q":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},)"
                                         R"("k":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})",
                                         "1234"));
  EXPECT_EQ(tensors.at("q").bytes, 0);
  EXPECT_EQ(tensors.at("k").bytes, 4);
}

TEST(Safetensors, RefusesHeaderLengthsThatLie) {
  expect_bad("", {"truncated", "0 bytes"});
  expect_bad("1234567", {"truncated", "7 bytes"});
  std::string file = safetensors("{}");
  file[0] = 3;
  expect_bad(file, {"truncated", "header of 3 bytes", "10 bytes"});
  file[7] = '\x7f';
  expect_bad(file, {"header of 9151314442816847875 bytes", "at most 100000000"});
  std::memset(file.data(), 0xff, 8);
  expect_bad(file, {"header of 18446744073709551615 bytes"});
}

TEST(Safetensors, RefusesJsonGarbage) {
  expect_bad(safetensors(""), {"expected '{'"});
  expect_bad(safetensors("[]"), {"expected '{'", "'[]'"});
  expect_bad(safetensors(" {}"), {"expected '{'"});
  expect_bad(safetensors("{\"q\":"), {"not JSON", "unexpected end of input"});
  expect_bad(safetensors("{} {}"), {"not JSON"});
  expect_bad(safetensors("{\"\xff\":1}"), {"not JSON"});
  expect_bad(safetensors("{\"q\":1e999}"), {"not JSON"});
  expect_bad(safetensors(std::string("{}\0{}", 5)), {"byte 2 is NUL"});
  expect_bad(safetensors("{\"q\":" + std::string(5'000'000, '[')), {"nests deeper"});
  expect_bad(safetensors("{\"q\":{\"shape\":" + std::string(1000, '{')), {"not JSON"});
  expect_bad(safetensors(R"({"__metadata__":{"a":1}})"), {"__metadata__"});
  expect_bad(safetensors(R"({"__metadata__":["a"]})"), {"__metadata__"});
}

TEST(Safetensors, RefusesDuplicates) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  expect_bad(safetensors("{\"q\":" + entry + ",\"q\":" + entry + "}", "1234"), {"tensor 'q' appears twice"});
  expect_bad(safetensors(R"({"q":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "1234"),
             {"key 'dtype' appears twice"});
}

TEST(Safetensors, RefusesBadEntries) {
  expect_bad_entry("7", 0, {"expected an object", "'7'"});
  expect_bad_entry("[1]", 0, {"expected an object"});
  expect_bad_entry("{}", 0, {"has no dtype"});
  expect_bad_entry(R"({"dtype":"F32","shape":[1]})", 4, {"has no data_offsets"});
  expect_bad_entry(R"({"dtype":"F32","data_offsets":[0,4]})", 4, {"has no shape"});
  expect_bad_entry(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})", 4, {"dtype to be a string", "'4'"});
  expect_bad_entry(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", 4, {"shape to be an array", "'1'"});
  expect_bad_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})", 4,
                   {"unknown key 'strides'"});
}

TEST(Safetensors, RefusesShapesThatLie) {
  const auto with_shape = [](const std::string& shape) {
    return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,16]})";
  };
  expect_bad_entry(with_shape("[5]"), 16, {"shape (5) of F32 needs 20 bytes", "give it 16"});
  expect_bad_entry(with_shape("[-4]"), 16, {"0 to 2^63 - 1", "'-4'"});
  expect_bad_entry(with_shape("[4.0]"), 16, {"0 to 2^63 - 1", "'4.0'"});
  expect_bad_entry(with_shape("[\"4\"]"), 16, {"0 to 2^63 - 1"});
  expect_bad_entry(with_shape("[9223372036854775808]"), 16, {"'9223372036854775808'"});
  expect_bad_entry(with_shape("[99999999999999999999]"), 16, {"0 to 2^63 - 1"});
  expect_bad_entry(with_shape("[4294967296,4294967296]"), 16, {"2^63 - 1 bytes"});
  // 2^62 elements of 4 bytes wrap to 0, and so would the product with the last dimension.
  expect_bad_entry(with_shape("[4611686018427387904,4]"), 16, {"2^63 - 1 bytes"});
  expect_bad_entry(with_shape("[0,9223372036854775807,9223372036854775807]"), 16, {"2^63 - 1 bytes"});
}

TEST(Safetensors, RefusesOffsetsThatLie) {
  const auto with_offsets = [](const std::string& offsets) {
    return R"({"dtype":"F32","shape":[4],"data_offsets":)" + offsets + "}";
  };
  expect_bad_entry(with_offsets("[0,16]"), 15, {"data_offsets", "<= 15", "truncated", "'[0,16]'"});
  expect_bad_entry(with_offsets("[16,0]"), 16, {"begin <= end", "'[16,0]'"});
  expect_bad_entry(with_offsets("[0]"), 16, {"begin <= end", "'[0]'"});
  expect_bad_entry(with_offsets("[0,8,16]"), 16, {"begin <= end"});
  expect_bad_entry(with_offsets("[-16,0]"), 16, {"0 to 2^63 - 1", "'-16'"});
  expect_bad_entry(with_offsets("[9223372036854775800,9223372036854775807]"), 16, {"<= 16"});
  expect_bad_entry(with_offsets("[18446744073709551600,18446744073709551615]"), 16, {"0 to 2^63 - 1"});
  expect_bad_entry(with_offsets("[4,20]"), 20, {"begins at 4", "leaving a hole after", "ends at 0"});
  expect_bad(safetensors("{\"q\":" + with_offsets("[0,16]") + "}", std::string(17, 'x')),
             {"1 trailing bytes"});
  expect_bad(safetensors("{}", "x"), {"1 trailing bytes"});
  expect_bad(safetensors("{\"k\":" + with_offsets("[0,16]") + ",\"q\":" + with_offsets("[12,28]") + "}",
                         std::string(28, 'x')),
             {"tensor 'q'", "begins at 12", "overlapping", "ends at 16"});
  expect_bad(safetensors("{\"k\":" + with_offsets("[0,16]") + ",\"q\":" + with_offsets("[0,16]") + "}",
                         std::string(16, 'x')),
             {"tensor 'q'", "overlapping"});
}

TEST(Safetensors, MakesNamesSafeForAMessage) {
  expect_bad(safetensors("{\"a\\n\\u001b[31m" + std::string(200, 'z') + "\":3}"),
             {"'a\\x0a\\x1b[31mzz", "z...'"});
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file = read_bytes(data_file("mixed.safetensors"));
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_THROW(parse(file.substr(0, length)), InputFile) << length;
}

TEST(Safetensors, RefusesToWritePast2To63) {
  const std::int64_t half = std::int64_t{1} << 60;
  expect_error(ErrorCode::kInvalidArgument, {"'b'"}, [&] {
    safetensors_header({{"a", DType::kF32, {half}}, {"b", DType::kF32, {half}}});
  });
}

}  // namespace
}  // namespace kvring
