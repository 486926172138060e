// Faults that users of packages of this field met, each as a small case with the right answer. Tests are
// named after the fault.
#pragma once

#include <cmath>
#include <limits>

#include "mask/mask.h"
#include "tests/ring/ring_support.h"

namespace kvring::test {

inline constexpr float kNoKey = -std::numeric_limits<float>::infinity();

// Self attention of one sequence.
inline Problem sequence(std::int64_t tokens, std::int64_t tile, bool causal = false) {
  Problem p = plain_problem(tokens, tile);
  p.causal = causal;
  return p;
}

inline Problem cross(std::int64_t q_len, std::int64_t kv_len, std::int64_t tile, bool causal = false) {
  Problem p = sequence(q_len, tile, causal);
  p.kv_len = kv_len;
  return p;
}

inline Problem documents(const std::vector<std::int64_t>& lengths, std::int64_t tile, bool causal = false) {
  std::vector<std::int64_t> borders = {0};
  for (std::int64_t length : lengths) borders.push_back(borders.back() + length);
  Problem p = sequence(borders.back(), tile, causal);
  p.cu_seqlens_q = p.cu_seqlens_kv = borders;
  return p;
}

inline AttendOptions ring_of(int ranks, LayoutKind layout = LayoutKind::kZigzag, Cut cut = Cut::kTiles) {
  AttendOptions options;
  options.ranks = ranks;
  options.layout = {layout, 0, cut};
  options.ring.threads = 1;
  options.timeout_s = kDeadline;
  return options;
}

// Whether query q sees key k, in the words of problem.h and one pair at a time: the reference finds its keys
// with the code that the ring uses, so their agreement alone would say nothing about a mask.
inline bool sees(const Problem& p, std::int64_t q, std::int64_t k) {
  std::int64_t q_begin = 0, q_end = p.q_len, kv_begin = 0, kv_end = p.kv_len;
  for (std::size_t i = 1; i < p.cu_seqlens_q.size(); ++i) {
    if (q < p.cu_seqlens_q[i - 1] || q >= p.cu_seqlens_q[i]) continue;
    q_begin = p.cu_seqlens_q[i - 1], q_end = p.cu_seqlens_q[i];
    kv_begin = p.cu_seqlens_kv[i - 1], kv_end = p.cu_seqlens_kv[i];
  }
  if (k < kv_begin || k >= kv_end) return false;
  const std::int64_t at = (q - q_begin) + (kv_end - kv_begin) - (q_end - q_begin), key = k - kv_begin;
  return !(p.causal && key > at) && !(p.window_left >= 0 && key < at - p.window_left) &&
         !(p.window_right >= 0 && key > at + p.window_right);
}

// The mask of every pair.
inline void expect_mask(const Problem& p) {
  const Mask mask(p);
  for (std::int64_t q = 0; q < p.q_len; ++q) {
    const Range seen = mask.visible(q);
    for (std::int64_t k = 0; k < p.kv_len; ++k)
      ASSERT_EQ(sees(p, q, k), seen.begin <= k && k < seen.end)
          << "query " << q << ", key " << k << ": " << describe(p);
  }
}

inline constexpr LayoutKind kLayouts[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};

// Every layout and both cuts at that ring size, against the reference.
inline void expect_reference_in_every_layout(const Problem& p, const Inputs& in, int ranks) {
  expect_mask(p);
  for (LayoutKind layout : kLayouts) {
    for (Cut cut : {Cut::kTiles, Cut::kTokens}) {
      const Result r = run_inproc(p, ring_of(ranks, layout, cut), in);
      expect_reference(p, in, r,
                       std::to_string(ranks) + " ranks, " + layout_name(layout) + ": " + describe(p));
    }
  }
}

// As expect_reference, for some rows: those of a long sequence take too long one by one.
inline void expect_reference_rows(const Problem& p, const Inputs& in, const Result& r,
                                  const std::vector<std::int64_t>& positions) {
  const ConstTensorView out = r.out.view(), lse = r.lse.view();
  for (std::int64_t s : positions)
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      const ReferenceRow row =
          reference_row(p, in.q.view(), in.k.view(), in.v.view(), in.sinks_data(), 0, s, h);
      for (std::int64_t d = 0; d < p.value_dim; ++d) {
        const double got = load_element(out.data, out.dtype, out.offset(0, s, h) + d);
        ASSERT_TRUE(matches(got, row.out[static_cast<std::size_t>(d)], out_bound(p, row, d)))
            << "row " << s << ", head " << h << ", dim " << d << ": " << got;
      }
      const double got = load_element(lse.data, DType::kF32, lse.offset(0, h, s));
      ASSERT_TRUE(matches(got, row.lse, lse_bound(p, row)))
          << "lse of row " << s << ", head " << h << ": " << got;
    }
}

// Rows of a sequence that are worth a look: both ends, the borders of 8 shards, and some in between.
inline std::vector<std::int64_t> telling_rows(Rng& rng, std::int64_t tokens, int random_rows) {
  std::vector<std::int64_t> rows = {0, tokens - 1};
  for (std::int64_t i = 1; i < 8; ++i) rows.insert(rows.end(), {i * tokens / 8 - 1, i * tokens / 8});
  for (int i = 0; i < random_rows; ++i) rows.push_back(rng.between(0, tokens - 1));
  return rows;
}

inline float lse_at(const Result& r, std::int64_t b, std::int64_t h, std::int64_t s) {
  const ConstTensorView lse = r.lse.view();
  return load_element(lse.data, DType::kF32, lse.offset(b, h, s));
}

}  // namespace kvring::test
