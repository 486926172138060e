#include "io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "kvring/error.h"

namespace kvring {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// Version 1.0 cannot say more; later versions could, but only for dtypes with thousands of fields.
constexpr std::int64_t kLongestDict = 65535;

std::int64_t little_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Bytes before the dictionary: magic, version and a length of 2 bytes (version 1) or 4.
std::int64_t prefix_bytes(std::string_view file) { return file[6] == 1 ? 10 : 12; }

// Reads the subset of Python literals that a .npy header is made of:
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class DictParser {
 public:
  struct Dict {
    std::string descr;
    bool fortran_order = false;
    std::vector<std::int64_t> shape;
  };

  DictParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Dict parse() {
    Dict dict;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::size_t key_at = at_;
      const std::string key = string("a key");
      const auto* known = std::find(std::begin(kKeys), std::end(kKeys), key);
      const auto index = known - std::begin(kKeys);
      if (known == std::end(kKeys)) fail(key_at, "one of 'descr', 'fortran_order', 'shape'", printable(key));
      if (std::exchange(seen[index], true)) fail(key_at, "each key once", printable(key) + " again");
      expect(':');
      if (index == 0) dict.descr = descr();
      if (index == 1) dict.fortran_order = boolean();
      if (index == 2) dict.shape = shape();
      if (!accept(',') && peek() != '}') fail(at_, "',' or '}'", found());
    }
    skip_spaces();
    if (at_ != text_.size()) fail(at_, "only spaces after the dictionary", found());
    for (int i = 0; i < 3; ++i) {
      if (!seen[i]) fail(at_, fmt::format("the key '{}'", kKeys[i]), "none");
    }
    return dict;
  }

 private:
  static constexpr std::string_view kKeys[3] = {"descr", "fortran_order", "shape"};

  [[noreturn]] void fail(std::size_t at, std::string_view expected, const std::string& got) const {
    throw InputFile(fmt::format("{}: .npy header, byte {} of its dictionary: expected {}, found {}", path_,
                                at, expected, got));
  }

  std::string found() const {
    return at_ == text_.size() ? "the end of the header" : printable(text_.substr(at_, 16));
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  char peek() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(at_, fmt::format("'{}'", c), found());
  }

  std::string string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(at_, what, found());
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(at_, "a closing quote", "none");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  std::string descr() {
    if (peek() == '[') fail(at_, "a plain dtype such as '<f4'", "a structured dtype");
    return string("a dtype such as '<f4'");
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    fail(at_, "True or False", found());
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      extents.push_back(extent());
      const bool comma = accept(',');
      if (!comma && (peek() != ')' || extents.size() == 1)) fail(at_, "',' in a shape", found());
    }
    return extents;
  }

  std::int64_t extent() {
    skip_spaces();
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) fail(at_, "a shape of integers from 0 to 2^63 - 1", found());
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
};

std::optional<DType> dtype_of_descr(std::string_view descr) {
  if (descr == "<f4") return DType::kF32;
  if (descr == "<f2") return DType::kF16;
  if (descr == "<V2" || descr == "|V2") return DType::kBF16;
  return std::nullopt;
}

std::string_view descr_of(DType dtype) {
  if (dtype == DType::kF32) return "<f4";
  return dtype == DType::kF16 ? "<f2" : "<V2";
}

}  // namespace

std::int64_t npy_header_bytes(std::string_view prefix, std::int64_t file_bytes, const std::string& path) {
  if (!prefix.starts_with(kMagic))
    throw InputFile(
        fmt::format("{}: not a .npy file: expected it to start with '\\x93NUMPY', found {}", path,
                    prefix.empty() ? "an empty file" : printable(prefix.substr(0, kMagic.size()))));
  if (prefix.size() < 10)
    throw InputFile(
        fmt::format("{}: truncated .npy file: {} bytes, the header alone takes more", path, file_bytes));
  const int major = static_cast<unsigned char>(prefix[6]);
  const int minor = static_cast<unsigned char>(prefix[7]);
  if (major < 1 || major > 3 || minor != 0)
    throw InputFile(fmt::format("{}: .npy version {}.{}; expected 1.0, 2.0 or 3.0", path, major, minor));
  const auto start = prefix_bytes(prefix);
  if (static_cast<std::int64_t>(prefix.size()) < start)
    throw InputFile(
        fmt::format("{}: truncated .npy file: {} bytes, the header alone takes more", path, file_bytes));
  const std::int64_t length = little_endian(prefix.substr(8, static_cast<std::size_t>(start - 8)));
  if (length > kLongestDict)
    throw InputFile(
        fmt::format("{}: .npy header of {} bytes; expected at most {}", path, length, kLongestDict));
  if (length > file_bytes - start)
    throw InputFile(fmt::format("{}: truncated .npy file: a header of {} bytes does not fit its {} bytes",
                                path, length, file_bytes));
  return start + length;
}

TensorInfo parse_npy(std::string_view header, std::int64_t file_bytes, const std::string& path) {
  const auto dict = DictParser(header.substr(static_cast<std::size_t>(prefix_bytes(header))), path).parse();
  TensorInfo info{dict.descr, dtype_of_descr(dict.descr), dict.shape,
                  static_cast<std::int64_t>(header.size()), 0};
  if (!info.dtype)
    throw InputFile(fmt::format("{}: dtype {}{}; expected '<f4' (f32), '<f2' (f16) or '<V2' (bf16)", path,
                                printable(dict.descr), dict.descr.starts_with('>') ? " is big-endian" : ""));
  if (dict.fortran_order)
    throw InputFile(
        fmt::format("{}: fortran_order is True; expected C order: save np.ascontiguousarray(x)", path));
  const auto bytes = checked_bytes(info.shape, static_cast<std::int64_t>(dtype_bytes(*info.dtype)));
  const std::int64_t have = file_bytes - info.offset;
  if (!bytes)
    throw InputFile(fmt::format("{}: shape {} is more than 2^63 - 1 bytes; the file has {} bytes of data",
                                path, shape_text(info.shape), have));
  if (*bytes != have)
    throw InputFile(fmt::format("{}: shape {} of {} needs {} bytes of data, the file has {}: {}", path,
                                shape_text(info.shape), dtype_name(*info.dtype), *bytes, have,
                                have < *bytes ? "truncated" : "trailing bytes"));
  info.bytes = *bytes;
  return info;
}

std::string npy_header(const TensorSpec& tensor) {
  std::string shape;
  for (std::int64_t extent : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
  if (tensor.shape.size() == 1) shape += ',';
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 descr_of(tensor.dtype), shape);
  // NumPy leaves room for the first dimension to grow to 21 digits, ends the header with a newline and
  // pads it to 64 bytes: doing the same makes the files equal byte for byte.
  if (!tensor.shape.empty()) dict.append(21 - fmt::formatted_size("{}", tensor.shape[0]), ' ');
  const std::size_t start = 10;
  const std::size_t total = (start + dict.size() + 1 + 63) / 64 * 64;
  dict.append(total - start - dict.size() - 1, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

}  // namespace kvring
