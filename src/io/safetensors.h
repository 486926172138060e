// The .safetensors header: 8 bytes of length, JSON, then the data of all tensors, end to end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_info.h"

namespace kvring {

// How many bytes of a file safetensors_header_bytes needs to see (all of it, when it is shorter).
inline constexpr std::int64_t kSafetensorsPrefixBytes = 8;

// The length of the header, its 8 bytes of length included, from the first bytes of a file: at most
// 100,000,008 (the format's own limit) and at most file_bytes. Throws InputFile, as the next does, naming
// path (used for nothing else), found and expected.
std::int64_t safetensors_header_bytes(std::string_view prefix, std::int64_t file_bytes,
                                      const std::string& path);

// All tensors by name, from the header (exactly safetensors_header_bytes long). As the format demands,
// names are unique and the data has no hole, overlap or trailing byte. Tensors of a dtype other than F32,
// BF16 and F16 are listed too (with no dtype): a file may hold what kvring does not read.
// `__metadata__` is checked and dropped.
std::map<std::string, TensorInfo> parse_safetensors(std::string_view header, std::int64_t file_bytes,
                                                    const std::string& path);

// The header of a new file; the data follows at once. The data of wider dtypes comes first, as the
// format's own library places it: readers that map the file need aligned elements. No `__metadata__`.
std::string safetensors_header(const std::vector<TensorSpec>& tensors);

}  // namespace kvring
