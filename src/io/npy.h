// The .npy header (NumPy's NEP 1), read without trusting it and written as NumPy writes it.
//
// bfloat16 has no NumPy type of its own: ml_dtypes saves it under the descr '<V2' (two opaque bytes), and
// the same array loaded and saved again by NumPy alone becomes '|V2'. Both are read as bf16, since no
// other two-byte type that NumPy saves ends up there; bf16 is written as '<V2', byte for byte what
// ml_dtypes writes, and read back by np.load(f).view(ml_dtypes.bfloat16).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/tensor_info.h"

namespace kvring {

// How many bytes of a file npy_header_bytes needs to see (all of it, when it is shorter).
inline constexpr std::int64_t kNpyPrefixBytes = 12;

// The length of the header, magic included, from the first bytes of a file. At most 65,548 and at most
// file_bytes. Throws InputFile, as the next does, naming path (used for nothing else), found and expected.
std::int64_t npy_header_bytes(std::string_view prefix, std::int64_t file_bytes, const std::string& path);

// The one tensor of a file, from its header (exactly npy_header_bytes long). Versions 1.0, 2.0 and 3.0;
// C order, little-endian f4, f2 or V2; the data must fill the rest of the file exactly.
TensorInfo parse_npy(std::string_view header, std::int64_t file_bytes, const std::string& path);

// The header of a new file; its data follows at once.
std::string npy_header(const TensorSpec& tensor);

}  // namespace kvring
