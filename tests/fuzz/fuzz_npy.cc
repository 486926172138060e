// Any bytes as a .npy file: parsing ends in a tensor that lies inside the file, or in InputFile.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/npy.h"
#include "kvring/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvring;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto bytes = static_cast<std::int64_t>(size);
  try {
    const std::int64_t header = npy_header_bytes(file.substr(0, kNpyPrefixBytes), bytes, "fuzz.npy");
    if (header > bytes) __builtin_trap();
    const TensorInfo info = parse_npy(file.substr(0, static_cast<std::size_t>(header)), bytes, "fuzz.npy");
    if (!info.dtype || info.offset != header || info.offset + info.bytes != bytes) __builtin_trap();
    // What was read is written as a header that reads the same.
    const std::string again = npy_header({"", *info.dtype, info.shape});
    const TensorInfo copy =
        parse_npy(again, static_cast<std::int64_t>(again.size()) + info.bytes, "fuzz.npy");
    if (copy.shape != info.shape || copy.dtype != info.dtype) __builtin_trap();
  } catch (const InputFile&) {
  }
  return 0;
}
