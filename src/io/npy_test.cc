#include "io/npy.h"

#include "io/input.h"
#include "io/test_support.h"

namespace kvring {
namespace {

std::string npy(const std::string& dict, const std::string& data = "", const std::string& version = {1, 0}) {
  std::string head = "\x93NUMPY" + version;
  head += static_cast<char>(dict.size() & 0xff);
  head += static_cast<char>(dict.size() >> 8 & 0xff);
  if (version[0] > 1) head += std::string(2, '\0');
  return head + dict + data;
}

TensorInfo parse(const std::string& file) {
  const auto bytes = static_cast<std::int64_t>(file.size());
  const auto header = npy_header_bytes(std::string_view(file).substr(0, kNpyPrefixBytes), bytes, "F.npy");
  return parse_npy(std::string_view(file).substr(0, static_cast<std::size_t>(header)), bytes, "F.npy");
}

void expect_bad(const std::string& file, std::vector<std::string> parts) {
  parts.push_back("F.npy");
  expect_error(ErrorCode::kInputFile, parts, [&] { parse(file); });
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const std::vector<std::int64_t> shape = {2, 3, 2, 4};
  for (const auto& [name, dtype] :
       {std::pair("f32.npy", DType::kF32), std::pair("f16.npy", DType::kF16),
        std::pair("bf16.npy", DType::kBF16), std::pair("bf16_resaved.npy", DType::kBF16),
        std::pair("f32_v2.npy", DType::kF32), std::pair("f32_v3.npy", DType::kF32)}) {
    SCOPED_TRACE(name);
    const std::string file = read_bytes(data_file(name));
    const TensorInfo info = parse(file);
    EXPECT_EQ(info.dtype, dtype);
    EXPECT_EQ(info.shape, shape);
    EXPECT_EQ(file.substr(static_cast<std::size_t>(info.offset)), ramp_bytes(dtype, 0, 48));
  }
}

TEST(Npy, WritesTheBytesThatNumPyWrites) {
  const auto expect_same = [](const char* name, DType dtype, const std::vector<std::int64_t>& shape,
                              std::int64_t elements) {
    EXPECT_EQ(npy_header({"x", dtype, shape}) + ramp_bytes(dtype, 0, elements), read_bytes(data_file(name)))
        << name;
  };
  expect_same("f32.npy", DType::kF32, {2, 3, 2, 4}, 48);
  expect_same("f16.npy", DType::kF16, {2, 3, 2, 4}, 48);
  expect_same("bf16.npy", DType::kBF16, {2, 3, 2, 4}, 48);
  expect_same("f32_no_batch.npy", DType::kF32, {3, 2, 4}, 24);
  expect_same("sinks.npy", DType::kF32, {2}, 2);
}

TEST(Npy, ReadsAnyOrderSpacingAndQuotes) {
  const TensorInfo info =
      parse(npy("{ \"shape\" :(1 ,2,), 'fortran_order':False,\n 'descr':'<f4'}  \n", std::string(8, 'x')));
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(info.bytes, 8);
  EXPECT_EQ(parse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }")).bytes, 0);
}

TEST(Npy, RefusesOtherFiles) {
  expect_bad("", {"an empty file"});
  expect_bad("PK\x03\x04hello world", {"not a .npy file", "'PK\\x03\\x04he'"});
  expect_bad("\x93NUMPY\x01", {"truncated", "7 bytes"});
  expect_bad(std::string("\x93NUMPY\x02\x00\x10\x00\x00", 11), {"truncated", "11 bytes"});
  expect_bad(npy("{}", "", {4, 0}), {"version 4.0", "1.0, 2.0 or 3.0"});
  expect_bad(npy("{}", "", {1, 2}), {"version 1.2"});
}

TEST(Npy, RefusesHeaderLengthsThatLie) {
  std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "1234");
  file[8] = 127;
  expect_bad(file, {"truncated", "header of 127 bytes", "71 bytes"});
  std::string v2 = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "1234", {2, 0});
  v2[8] = v2[9] = v2[10] = v2[11] = '\xff';
  expect_bad(v2, {"header of 4294967295 bytes", "at most 65535"});
  file[8] = 20;  // ends inside the dictionary
  expect_bad(file, {"expected a closing quote"});
}

TEST(Npy, RefusesWrongDtypesAndOrder) {
  for (const char* descr : {">f4", "<f8", "<i2", ">V2", "<V4", "=f4", "f4", "|b1", "<U8", ""}) {
    expect_bad(
        npy("{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (1,), }", "1234"),
        {"dtype '" + std::string(descr) + "'", "expected '<f4' (f32)"});
  }
  expect_bad(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
             {"structured dtype"});
  expect_bad(read_bytes(data_file("big_endian.npy")), {"'>f4' is big-endian"});
  expect_bad(read_bytes(data_file("fortran.npy")), {"fortran_order is True", "ascontiguousarray"});
  expect_bad(read_bytes(data_file("int32.npy")), {"'<i4'"});
}

TEST(Npy, RefusesShapesThatLie) {
  const auto with_shape = [](const std::string& shape, std::size_t bytes) {
    return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", std::string(bytes, 'x'));
  };
  expect_bad(with_shape("(2, 3)", 20), {"shape (2, 3) of f32 needs 24 bytes", "has 20", "truncated"});
  expect_bad(with_shape("(2, 3)", 28), {"needs 24 bytes", "has 28", "trailing bytes"});
  expect_bad(with_shape("(-1, 3)", 12), {"0 to 2^63 - 1", "'-1, 3)"});
  expect_bad(with_shape("(4294967296, 4294967296)", 0), {"(4294967296, 4294967296)", "2^63 - 1 bytes"});
  expect_bad(with_shape("(2305843009213693952,)", 0), {"2^63 - 1 bytes"});
  expect_bad(with_shape("(0, 4294967296, 4294967296)", 0), {"2^63 - 1 bytes"});
  expect_bad(with_shape("(99999999999999999999,)", 0), {"'9999999999999999'"});
  expect_bad(with_shape("(3)", 12), {"',' in a shape"});
  expect_bad(with_shape("(2 3)", 24), {"',' in a shape"});
  expect_bad(with_shape("[2, 3]", 24), {"'('", "'[2, 3]"});
  expect_bad(with_shape("(1.5,)", 24), {"',' in a shape", "'.5"});
  expect_bad(with_shape("((((((1,),),),),),)", 4), {"a shape of integers"});
  expect_bad(with_shape("(2,", 8), {"a shape of integers"});
}

TEST(Npy, RefusesDictionariesThatAreNotHeaders) {
  expect_bad(npy("{'descr': '<f4', 'shape': (1,), }", "1234"), {"the key 'fortran_order'", "none"});
  expect_bad(npy("{'descr': '<f4', 'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", "1234"),
             {"each key once", "'descr' again"});
  expect_bad(npy("{'descr': '<f4', 'order': 1, 'fortran_order': False, 'shape': (1,), }", "1234"),
             {"one of 'descr', 'fortran_order', 'shape'", "'order'"});
  expect_bad(npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "1234"), {"True or False"});
  expect_bad(npy("{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }", "1234"), {"',' or '}'"});
  expect_bad(npy("{'descr': '<f4", "1234"), {"a closing quote"});
  expect_bad(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } os.system()", "1234"),
             {"only spaces after"});
  expect_bad(npy("import os", "1234"), {"expected '{'", "'import os'"});
  expect_bad(npy("", "1234"), {"expected '{'", "the end of the header"});
}

// Every prefix of a good file is an error, never a crash or a shorter tensor.
TEST(Npy, RefusesEveryTruncation) {
  const std::string file = read_bytes(data_file("f16.npy"));
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_THROW(parse(file.substr(0, length)), InputFile) << length;
}

}  // namespace
}  // namespace kvring
