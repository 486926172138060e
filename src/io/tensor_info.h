// What a tensor file says about its tensors, in words common to both formats.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvring/tensor.h"

namespace kvring {

// Both formats store little-endian elements, which are copied between file and memory as they are.
static_assert(std::endian::native == std::endian::little,
              "kvring reads and writes little-endian machines only");

enum class FileFormat : std::uint8_t { kNpy, kSafetensors };

// By suffix. Throws InvalidArgument naming the path and the two suffixes that work.
FileFormat file_format(const std::string& path);

// A tensor to be written.
struct TensorSpec {
  std::string name;  // stored in .safetensors; .npy stores no name
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

// A tensor found in a file. `offset` and `bytes` lie inside the file, and `bytes` agrees with the shape
// when the dtype is one that kvring reads.
struct TensorInfo {
  std::string dtype_text;      // as the file names it: "F32", "<f4"
  std::optional<DType> dtype;  // empty: none of f32, bf16, f16
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of the first element, from the start of the file
  std::int64_t bytes = 0;
};

// Bytes of a dense tensor; empty when a dimension is negative or when the product does not fit int64.
// A dimension of 0 does not excuse the others, so no stride of an accepted shape overflows.
std::optional<std::int64_t> checked_bytes(const std::vector<std::int64_t>& shape, std::int64_t element_bytes);

// "(1, 4096, 8, 128)".
std::string shape_text(const std::vector<std::int64_t>& shape);

// Text from a file, made safe for a message: in quotes, without control or foreign bytes, cut when long.
std::string printable(std::string_view text, std::size_t longest = 80);

}  // namespace kvring
