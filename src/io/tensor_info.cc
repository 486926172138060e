#include "io/tensor_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvring/error.h"

namespace kvring {

FileFormat file_format(const std::string& path) {
  if (path.ends_with(".npy")) return FileFormat::kNpy;
  if (path.ends_with(".safetensors")) return FileFormat::kSafetensors;
  throw InvalidArgument(fmt::format("{}: unknown kind of file; the name must end in .npy or .safetensors",
                                    path.empty() ? "(empty path)" : path));
}

std::optional<std::int64_t> checked_bytes(const std::vector<std::int64_t>& shape,
                                          std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  bool empty = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kMost = 8;  // a file may claim thousands
  const auto end = shape.begin() + static_cast<std::ptrdiff_t>(std::min(shape.size(), kMost));
  return fmt::format("({}{})", fmt::join(shape.begin(), end, ", "), shape.size() > kMost ? ", ..." : "");
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string safe = "'";
  for (char c : text.substr(0, longest)) {
    if (c >= ' ' && c <= '~') {
      safe += c;
    } else {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return safe + (text.size() > longest ? "...'" : "'");
}

}  // namespace kvring
