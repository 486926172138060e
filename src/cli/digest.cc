#include "cli/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace kvring::cli {
namespace {

// Calls row(b, local token, global index) for every token of the shard.
template <typename Row>
void for_each_token(std::int64_t batch, const Shard& shard, std::int64_t seqlen, Row row) {
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t local = 0;
    for (const Range& range : shard.ranges()) {
      for (std::int64_t s = range.begin; s < range.end; ++s, ++local) row(b, local, b * seqlen + s);
    }
  }
}

}  // namespace

std::uint64_t digest_part(const ConstTensorView& local, const Shard& shard, std::int64_t seqlen) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(local.dtype));
  const auto token_bytes = static_cast<std::size_t>(local.shape[2] * local.shape[3] * element);
  const auto* bytes = static_cast<const char*>(local.data);
  std::uint64_t sum = 0;
  for_each_token(local.shape[0], shard, seqlen, [&](std::int64_t b, std::int64_t row, std::int64_t index) {
    sum += XXH3_64bits_withSeed(bytes + local.offset(b, row, 0) * element, token_bytes,
                                static_cast<std::uint64_t>(index));
  });
  return sum;
}

std::uint64_t digest_part(const LseView& local, const Shard& shard, std::int64_t seqlen) {
  std::vector<float> heads(static_cast<std::size_t>(local.shape[1]));
  std::uint64_t sum = 0;
  for_each_token(local.shape[0], shard, seqlen, [&](std::int64_t b, std::int64_t row, std::int64_t index) {
    for (std::size_t h = 0; h < heads.size(); ++h)
      heads[h] = local.data[local.offset(b, static_cast<std::int64_t>(h), row)];
    sum +=
        XXH3_64bits_withSeed(heads.data(), heads.size() * sizeof(float), static_cast<std::uint64_t>(index));
  });
  return sum;
}

std::string digest_text(std::uint64_t sum, DType dtype, const std::vector<std::int64_t>& shape) {
  std::string whole = fmt::format("{:016x} {}", sum, dtype_name(dtype));
  for (std::int64_t extent : shape) whole += fmt::format(" {}", extent);
  return fmt::format("{:016x}", XXH3_64bits(whole.data(), whole.size()));
}

}  // namespace kvring::cli
