// Any bytes as a .safetensors file: parsing ends in tensors that lie inside the file, or in InputFile.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/safetensors.h"
#include "kvring/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvring;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto bytes = static_cast<std::int64_t>(size);
  try {
    const std::int64_t header =
        safetensors_header_bytes(file.substr(0, kSafetensorsPrefixBytes), bytes, "fuzz.safetensors");
    if (header > bytes) __builtin_trap();
    std::int64_t covered = header;
    for (const auto& [name, info] :
         parse_safetensors(file.substr(0, static_cast<std::size_t>(header)), bytes, "fuzz.safetensors")) {
      if (info.offset < header || info.bytes < 0 || info.bytes > bytes - info.offset) __builtin_trap();
      covered += info.bytes;
    }
    if (covered != bytes) __builtin_trap();
  } catch (const InputFile&) {
  }
  return 0;
}
