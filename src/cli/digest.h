// A digest of a whole output tensor that no rank has to hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvring/layout.h"
#include "kvring/tensor.h"

namespace kvring::cli {

// The part of a rank: the sum mod 2^64, over its tokens, of the XXH3 hash of the token's bytes (all heads)
// seeded with the token's global index b * seqlen + s. Addition commutes, so the sum over all ranks depends
// on the tensor alone and on nobody's layout; the seed makes it depend on the order of the tokens.
//
// `local` is dense, (batch, shard.tokens(), heads, dim); `seqlen` is that of the whole tensor.
std::uint64_t digest_part(const ConstTensorView& local, const Shard& shard, std::int64_t seqlen);
// The same for LSE, where a token's bytes are its heads' values: `local` is (batch, heads, shard.tokens()).
std::uint64_t digest_part(const LseView& local, const Shard& shard, std::int64_t seqlen);

// 16 hex digits from the sum of all parts, and dtype and shape of the whole.
std::string digest_text(std::uint64_t sum, DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace kvring::cli
