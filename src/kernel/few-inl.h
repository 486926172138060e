// The float32 products of a few query rows, as in decode, per target: the chains of chains-inl.h with keys
// (scores) and dims (values) in the lanes, where query rows would leave most lanes empty. What lies in the
// lanes changes no chain: the bits are the same.

#if defined(KVRING_KERNEL_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_FEW_INL_H_
#undef KVRING_KERNEL_FEW_INL_H_
#else
#define KVRING_KERNEL_FEW_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/repair.h"
#include "kernel/softmax-inl.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// The most rows that are few. `kvring bench kernel --case f32-decode8-d64-n131072` and its neighbours find it
// again: with 32 registers of 16 lanes, 8 rows take 0.6 of the time that rows in the lanes take for 1 to 16,
// so 16 would gain nothing. 4 rows are what 16 registers hold; there they take a third to a half.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE2 || \
    HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4  // no fused instruction on vectors
constexpr int kFewRows = 0;
#else
constexpr int kFewRows = kLanes == 16 ? 8 : 4;
#endif
constexpr bool is_few(int rows) { return rows <= kFewRows; }

// Groups side by side: enough chains to cover the latency of few rows, as few as keep them in registers.
constexpr int kFewGroups = kLanes == 16 ? 4 : 2;

// Floats that memory is asked for before they are needed. 4 Ki were as good, 1 Ki worse for 1 row. Nothing is
// asked for while weights are computed: it gained nothing.
constexpr std::int64_t kFewFetchAhead = 2048;

// Packed groups `next` apart whose terms are `step` apart.
struct FewGroups {
  const float* at;
  std::int64_t next, step;
};
// What they are multiplied by: term t of row r is at[r * row + t * term].
struct FewTerms {
  const float* at;
  std::int64_t row, term, count;
};
// Where lane i of row r goes: at[r * row + i]; and the sums of the terms of each row, where wanted.
struct FewSums {
  float* at;
  std::int64_t row;
  float* of_terms;
};

// Vector j of those that lie across the groups: a part of a group, a group, or two.
template <class Tag>
HWY_INLINE hn::Vec<Tag> load_across(Tag tag, const float* at, std::int64_t next, int j) {
  constexpr int kIn = static_cast<int>(hn::MaxLanes(Tag()));
#if HWY_TARGET == HWY_AVX3
  if constexpr (kIn == 2 * kGroup) {
    const hn::Half<Tag> half;
    return hn::Combine(tag, hn::LoadU(half, at + (2 * j + 1) * next), hn::LoadU(half, at + 2 * j * next));
  }
#endif
  constexpr int kParts = std::max(1, kGroup / kIn);
  return hn::LoadU(tag, at + j / kParts * next + j % kParts * kIn);
}

// For kRows rows and kVectors vectors across the groups: chains over ascending terms from +0.
template <bool kOfTerms, int kRows, int kVectors, class Tag>
HWY_INLINE void few_kernel(Tag tag, const FewGroups& groups, const FewTerms& terms, const FewSums& sums) {
  using V = hn::Vec<Tag>;
  constexpr int kIn = static_cast<int>(hn::MaxLanes(Tag()));
  V c[kRows][kVectors], l[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    l[r] = hn::Zero(tag);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) c[r][j] = hn::Zero(tag);
  }
  const float* HWY_RESTRICT a = groups.at;
  const float* fetch = a + kFewFetchAhead;  // front to back, as memory is read in the long run
  const float* b = terms.at;
  for (std::int64_t t = 0; t < terms.count; ++t) {
    V v[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) v[j] = load_across(tag, a, groups.next, j);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors * kIn; j += 16) __builtin_prefetch(fetch + j);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(tag, b[r * terms.row]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) c[r][j] = hn::MulAdd(x, v[j], c[r][j]);
      if (kOfTerms) l[r] = hn::Add(l[r], x);
    }
    a += groups.step;
    fetch += kVectors * kIn;
    b += terms.term;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (kOfTerms) sums.of_terms[r] = hn::GetLane(l[r]);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) hn::StoreU(c[r][j], tag, sums.at + r * sums.row + j * kIn);
  }
}

// Calls f(tag, vectors, first, i, width) for the lanes from `begin`, a multiple of 8, to `end`: several
// groups at once, then one, then what is left of the last one lane by lane. `first + i` is the lane, `first`
// that of its group.
template <class F>
HWY_INLINE void for_groups(std::int64_t begin, std::int64_t end, const F& f) {
  using Group = hn::CappedTag<float, kGroup>;
  constexpr int kSet = kFewGroups * kGroup;
  constexpr int kInGroup = static_cast<int>(hn::MaxLanes(Group()));
  std::int64_t first = begin;
  for (; first + kSet <= end; first += kSet)
    f(F32(), std::integral_constant<int, kSet / kLanes>(), first, 0, kGroup);
  for (; first + kGroup <= end; first += kGroup)
    f(Group(), std::integral_constant<int, kGroup / kInGroup>(), first, 0, kGroup);
  const int width = static_cast<int>(end - first);
  for (int i = 0; i < width; ++i)
    f(hn::CappedTag<float, 1>(), std::integral_constant<int, 1>(), first, i, width);
}

// Calls f(count) with the rows to compute: lanes of the panel without a row are zeros, and harmless.
template <class F>
HWY_INLINE void for_few_rows(int rows, const F& f) {
  if (rows == 1) return f(std::integral_constant<int, 1>());
  if (rows == 2) return f(std::integral_constant<int, 2>());
  if (rows <= 4) return f(std::integral_constant<int, 4>());
  if constexpr (kFewRows > 4) f(std::integral_constant<int, kFewRows>());
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
