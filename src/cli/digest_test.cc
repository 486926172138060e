#include "cli/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace kvring::cli {
namespace {

constexpr std::int64_t kBatch = 2, kTokens = 37, kHeads = 3, kDim = 5;

// A whole (batch, tokens, heads, dim) tensor and its (batch, heads, tokens) companion.
struct Whole {
  std::vector<float> out = std::vector<float>(kBatch * kTokens * kHeads * kDim);
  std::vector<float> lse = std::vector<float>(kBatch * kHeads * kTokens);

  Whole() {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 101);
    for (std::size_t i = 0; i < lse.size(); ++i) lse[i] = static_cast<float>(i % 97);
  }
};

std::array<std::uint64_t, 2> sums(const Whole& whole, const Layout& layout) {
  std::array<std::uint64_t, 2> sum = {0, 0};
  for (const Shard& rows : layout.shards) {
    std::vector<float> out(static_cast<std::size_t>(kBatch * rows.tokens() * kHeads * kDim));
    const auto local = dense_view<void>(out.data(), DType::kF32, {kBatch, rows.tokens(), kHeads, kDim});
    shard(dense_view<const void>(whole.out.data(), DType::kF32, {kBatch, kTokens, kHeads, kDim}), rows,
          local);
    std::vector<float> lse;
    for (std::int64_t line = 0; line < kBatch * kHeads; ++line) {
      for (std::int64_t i = 0; i < rows.tokens(); ++i)
        lse.push_back(whole.lse[static_cast<std::size_t>(line * kTokens + rows.position(i))]);
    }
    sum[0] += digest_part(as_const(local), rows, kTokens);
    sum[1] += digest_part(dense_lse_view(lse.data(), {kBatch, kHeads, rows.tokens()}), rows, kTokens);
  }
  return sum;
}

std::array<std::uint64_t, 2> sums(const Whole& whole) {
  return sums(whole, make_layout({LayoutKind::kContiguous}, kTokens, {}, 4, 1));
}

TEST(Digest, DoesNotDependOnWhoOwnsWhat) {
  const Whole whole;
  const auto expected = sums(whole);
  for (LayoutKind kind : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
    for (int ranks : {2, 3, 16})
      EXPECT_EQ(sums(whole, make_layout({kind}, kTokens, {}, 4, ranks)), expected)
          << layout_name(kind) << ranks;
  }
}

TEST(Digest, DependsOnEveryElement) {
  const auto expected = sums(Whole());
  for (std::size_t i = 0; i < Whole().out.size(); ++i) {
    Whole other;
    other.out[i] += 0x1p-17f;
    EXPECT_NE(sums(other)[0], expected[0]) << i;
  }
  for (std::size_t i = 0; i < Whole().lse.size(); ++i) {
    Whole other;
    other.lse[i] += 0x1p-17f;
    EXPECT_NE(sums(other)[1], expected[1]) << i;
  }
}

TEST(Digest, DependsOnTheOrderOfTokens) {
  Whole other;
  std::swap_ranges(other.out.begin(), other.out.begin() + kHeads * kDim, other.out.begin() + kHeads * kDim);
  EXPECT_NE(sums(other)[0], sums(Whole())[0]);
}

TEST(Digest, TextDependsOnShapeAndDType) {
  const std::string text = digest_text(7, DType::kF32, {2, 3});
  EXPECT_EQ(text.size(), 16u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(text, digest_text(7, DType::kF32, {3, 2}));
  EXPECT_NE(text, digest_text(7, DType::kF16, {2, 3}));
  EXPECT_NE(text, digest_text(8, DType::kF32, {2, 3}));
}

}  // namespace
}  // namespace kvring::cli
