#include "kvring/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "kvring/error.h"
#include "problem/checks.h"

namespace kvring {
namespace {

constexpr std::int64_t kMaxDim = 256;
// The order-independent accumulator sums that many tiles of a row without overflow.

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw InvalidArgument(fmt::format("{} is {}; it must be {} or more", name, value, least));
}

void check_dim(const char* name, std::int64_t value) {
  if (value < 1 || value > kMaxDim)
    throw InvalidArgument(fmt::format("{} is {}; it must be 1 to {}", name, value, kMaxDim));
}

void check_heads(const Problem& p) {
  check_at_least("q_heads", p.q_heads, 1);
  check_at_least("kv_heads", p.kv_heads, 1);
  const std::int64_t rest = p.q_heads % p.kv_heads;
  if (rest == 0) return;
  const std::int64_t below = p.q_heads - rest;
  throw InvalidArgument(fmt::format(
      "q_heads is {} and kv_heads is {}; q_heads must be a multiple of kv_heads, such as {}", p.q_heads,
      p.kv_heads,
      below > 0 ? fmt::format("{} or {}", below, below + p.kv_heads) : std::to_string(p.kv_heads)));
}

// Offsets in bytes are 64-bit everywhere; a tensor whose size does not fit would wrap them.
void check_bytes(const char* name, const Problem& p, std::int64_t len, std::int64_t heads, std::int64_t dim,
                 DType dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  for (std::int64_t factor : {dim, heads, p.batch, len}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      throw InvalidArgument(
          fmt::format("{} of shape ({}, {}, {}, {}) has more bytes than 64 bits can count; use smaller sizes",
                      name, p.batch, len, heads, dim));
  }
}

void check_sizes(const Problem& p) {
  check_bytes("q", p, p.q_len, p.q_heads, p.head_dim, p.q_dtype);
  check_bytes("k", p, p.kv_len, p.kv_heads, p.head_dim, p.kv_dtype);
  check_bytes("v", p, p.kv_len, p.kv_heads, p.value_dim, p.kv_dtype);
  check_bytes("out", p, p.q_len, p.q_heads, p.value_dim, p.out_dtype);
}

void check_documents(const Problem& p) {
  const auto& q = p.cu_seqlens_q;
  const auto& kv = p.cu_seqlens_kv;
  if (q.empty() != kv.empty()) {
    const auto [given, missing] = q.empty() ? std::pair("kv", "q") : std::pair("q", "kv");
    throw InvalidArgument(
        fmt::format("cu_seqlens_{} is given without cu_seqlens_{}; give both or neither", given, missing));
  }
  check_cu_seqlens("cu_seqlens_q", q, "q_len", p.q_len);
  check_cu_seqlens("cu_seqlens_kv", kv, "kv_len", p.kv_len);
  if (q.size() != kv.size())
    throw InvalidArgument(
        fmt::format("cu_seqlens_q has {} entries and cu_seqlens_kv has {}; both need one more than there are "
                    "documents",
                    q.size(), kv.size()));
  if (!q.empty() && p.batch != 1)
    throw InvalidArgument(fmt::format(
        "batch is {} with packed documents; use batch 1 and pack all documents into it", p.batch));
}

void check_tile_count(const Problem& p) {
  std::int64_t longest = p.cu_seqlens_kv.empty() ? p.kv_len : 0;
  for (std::size_t i = 1; i < p.cu_seqlens_kv.size(); ++i)
    longest = std::max(longest, p.cu_seqlens_kv[i] - p.cu_seqlens_kv[i - 1]);
  if (longest <= kMaxTiles * p.tile) return;
  const std::int64_t enough = longest / kMaxTiles + (longest % kMaxTiles != 0);
  throw InvalidArgument(fmt::format(
      "a document of {} keys has more than {} tiles of {}; {}", longest, kMaxTiles, p.tile,
      enough <= kMaxTile ? fmt::format("use a tile of at least {}", enough)
                         : fmt::format("the longest possible has {} keys", kMaxTiles * kMaxTile)));
}

void check_numbers(const Problem& p) {
  if (p.softmax_scale && !std::isfinite(*p.softmax_scale))
    throw InvalidArgument(fmt::format("softmax_scale is {}; it must be finite", *p.softmax_scale));
  // Kernels compute with scale * log2(e), scale / softcap and softcap * log2(e) in float32.
  constexpr double kLargest = 1e30, kSmallest = 1e-30;
  if (p.softmax_scale && std::fabs(*p.softmax_scale) > kLargest)
    throw InvalidArgument(fmt::format("softmax_scale is {}; it must be between -{} and {}", *p.softmax_scale,
                                      kLargest, kLargest));
  if (!std::isfinite(p.softcap) || p.softcap < 0)
    throw InvalidArgument(
        fmt::format("softcap is {}; it must be finite and positive, or 0 for none", p.softcap));
  if (p.softcap != 0 && (p.softcap < kSmallest || p.softcap > kLargest))
    throw InvalidArgument(fmt::format("softcap is {}; it must be between {} and {}, or 0 for none", p.softcap,
                                      kSmallest, kLargest));
  for (auto [name, value] : {std::pair("window_left", p.window_left), {"window_right", p.window_right}}) {
    if (value < -1)
      throw InvalidArgument(fmt::format("{} is {}; it must be 0 or more, or -1 for unlimited", name, value));
  }
}

}  // namespace

void check_tile(std::int64_t tile) {
  if (tile < 1 || tile > kMaxTile)
    throw InvalidArgument(fmt::format("tile is {}; it must be 1 to {}", tile, kMaxTile));
}

void check_cu_seqlens(std::string_view name, const std::vector<std::int64_t>& cu_seqlens,
                      std::string_view tokens_name, std::int64_t tokens) {
  if (cu_seqlens.empty()) return;
  if (cu_seqlens.size() < 2)
    throw InvalidArgument(fmt::format(
        "{} has 1 entry; it needs one more than there are documents, such as 0,{}", name, tokens));
  if (cu_seqlens.front() != 0)
    throw InvalidArgument(fmt::format("{} starts at {}; it must start at 0", name, cu_seqlens.front()));
  const auto fall = std::is_sorted_until(cu_seqlens.begin(), cu_seqlens.end());
  if (fall != cu_seqlens.end())
    throw InvalidArgument(fmt::format("{} falls from {} to {} at entry {}; it must never fall", name,
                                      *(fall - 1), *fall, fall - cu_seqlens.begin()));
  if (cu_seqlens.back() != tokens)
    throw InvalidArgument(fmt::format("{} ends at {}; it must end at {}, which is {}", name,
                                      cu_seqlens.back(), tokens_name, tokens));
}

double Problem::scale() const {
  return softmax_scale ? *softmax_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

void validate(const Problem& problem) {
  check_at_least("batch", problem.batch, 1);
  check_at_least("q_len", problem.q_len, 0);
  check_at_least("kv_len", problem.kv_len, 0);
  check_heads(problem);
  check_dim("head_dim", problem.head_dim);
  check_dim("value_dim", problem.value_dim);
  check_sizes(problem);
  check_numbers(problem);
  check_documents(problem);
  check_tile(problem.tile);
  check_tile_count(problem);
}

std::vector<ProblemField> problem_fields(const Problem& p) {
  // 17 significant digits tell any two doubles apart; adding 0 makes one zero of the two.
  const auto real = [](double value) { return fmt::format("{:.17g}", value + 0.0); };
  const auto name = [](DType dtype) { return std::string(dtype_name(dtype)); };
  const auto yes_no = [](bool value) { return std::string(value ? "true" : "false"); };
  return {
      {"batch", std::to_string(p.batch)},
      {"q_len", std::to_string(p.q_len)},
      {"kv_len", std::to_string(p.kv_len)},
      {"q_heads", std::to_string(p.q_heads)},
      {"kv_heads", std::to_string(p.kv_heads)},
      {"head_dim", std::to_string(p.head_dim)},
      {"value_dim", std::to_string(p.value_dim)},
      {"q_dtype", name(p.q_dtype)},
      {"kv_dtype", name(p.kv_dtype)},
      {"out_dtype", name(p.out_dtype)},
      {"softmax_scale", real(p.scale())},
      {"softcap", real(p.softcap)},
      {"causal", yes_no(p.causal)},
      {"window_left", std::to_string(p.window_left)},
      {"window_right", std::to_string(p.window_right)},
      {"cu_seqlens_q", fmt::format("{}", fmt::join(p.cu_seqlens_q, ","))},
      {"cu_seqlens_kv", fmt::format("{}", fmt::join(p.cu_seqlens_kv, ","))},
      {"sinks", yes_no(p.has_sinks)},
      {"tile", std::to_string(p.tile)},
      {"accumulation", p.accumulation == Accumulation::kReproducible ? "reproducible" : "online"},
  };
}

std::uint64_t problem_digest(const Problem& problem) {
  std::string text;
  for (const ProblemField& field : problem_fields(problem)) text += field.name + '=' + field.value + '\n';
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace kvring
