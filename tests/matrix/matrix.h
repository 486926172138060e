// The matrix: every layout, mask, dtype and feature against the float64 reference and against one rank.
// Written over "run this problem on that many ranks", so that each transport runs the same cases.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kvring/attend.h"
#include "reference/bound.h"
#include "schedule/parcel.h"
#include "tests/support/random_problem.h"

namespace kvring::test {

struct Result {
  OwnedTensor out;
  OwnedTensor lse;  // as (batch, heads, seqlen, 1) float32
  AttendReport report;
  friend bool same_bits(const Result& a, const Result& b) { return a.out == b.out && a.lse == b.lse; }
};

inline Result run_inproc(const Problem& p, const AttendOptions& options, const Inputs& in) {
  Result r{OwnedTensor(p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim}),
           OwnedTensor(DType::kF32, {p.batch, p.q_heads, p.q_len, 1}),
           {}};
  auto* lse = static_cast<float*>(r.lse.view().data);
  r.report = attend(p, options, in.q.view(), in.k.view(), in.v.view(), r.out.view(),
                    dense_lse_view(lse, {p.batch, p.q_heads, p.q_len}), in.sinks_data());
  return r;
}

// Every element of out and lse within the bound of its row.
inline void expect_reference(const Problem& p, const Inputs& in, const Result& r, const std::string& where) {
  const std::vector<ReferenceRow> rows = reference_rows(p, in);
  const TensorView out = const_cast<Result&>(r).out.view();
  const TensorView lse = const_cast<Result&>(r).lse.view();
  std::size_t i = 0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t s = 0; s < p.q_len; ++s)
      for (std::int64_t h = 0; h < p.q_heads; ++h) {
        const ReferenceRow& row = rows[i++];
        for (std::int64_t d = 0; d < p.value_dim; ++d) {
          const double got = load_element(out.data, out.dtype, out.offset(b, s, h) + d);
          const double want = row.out[static_cast<std::size_t>(d)];
          ASSERT_TRUE(matches(got, want, out_bound(p, row, d)))
              << where << " out (" << b << ", " << s << ", " << h << ", " << d << "): " << got << " for "
              << want << ", bound " << out_bound(p, row, d);
        }
        const double got = load_element(lse.data, DType::kF32, lse.offset(b, h, s));
        ASSERT_TRUE(matches(got, row.lse, lse_bound(p, row)))
            << where << " lse (" << b << ", " << h << ", " << s << "): " << got << " for " << row.lse;
      }
}

enum class MaskKind { kFull, kCausal, kWindow, kCausalWindow, kDocuments, kCausalDocuments };
inline constexpr MaskKind kMasks[] = {MaskKind::kFull,      MaskKind::kCausal,
                                      MaskKind::kWindow,    MaskKind::kCausalWindow,
                                      MaskKind::kDocuments, MaskKind::kCausalDocuments};

// A random problem of that mask and dtype: ragged lengths over small tiles, with every other feature by
// chance.
inline Problem matrix_problem(Rng& rng, MaskKind mask, DType dtype) {
  Problem p;
  p.batch = rng.chance(0.3) ? 2 : 1;
  p.q_len = rng.between(30, 90);
  p.kv_len = rng.chance(0.6) ? p.q_len : rng.between(1, 110);
  p.kv_heads = rng.between(1, 3);
  p.q_heads = p.kv_heads * rng.between(1, 3);
  p.head_dim = rng.between(1, 24);
  p.value_dim = rng.chance(0.5) ? p.head_dim : rng.between(1, 24);
  p.q_dtype = rng.chance(0.8) ? dtype : DType::kF32;
  p.kv_dtype = dtype;
  p.out_dtype = rng.chance(0.8) ? dtype : DType::kF32;
  p.causal =
      mask == MaskKind::kCausal || mask == MaskKind::kCausalWindow || mask == MaskKind::kCausalDocuments;
  if (mask == MaskKind::kWindow || mask == MaskKind::kCausalWindow) {
    p.window_left = rng.between(-1, 40);
    p.window_right = rng.between(-1, 20);
  }
  if (mask == MaskKind::kDocuments || mask == MaskKind::kCausalDocuments) {
    p.batch = 1;
    p.cu_seqlens_q = random_cu_seqlens(rng, 5, 20);
    p.cu_seqlens_kv = rng.chance(0.6) ? p.cu_seqlens_q : random_cu_seqlens(rng, 5, 24);
    p.q_len = p.cu_seqlens_q.back();
    p.kv_len = p.cu_seqlens_kv.back();
  }
  if (rng.chance(0.2)) p.softcap = 5.0;
  if (rng.chance(0.2)) p.softmax_scale = 0.3;
  p.has_sinks = rng.chance(0.3);
  p.tile = rng.between(3, 9);
  return p;
}

// The same with as many heads as every schedule can share out over so many ranks, one or two to each.
inline Problem shareable_problem(Rng& rng, MaskKind mask, DType dtype, int ranks) {
  Problem p = matrix_problem(rng, mask, dtype);
  p.kv_heads = (p.batch == 2 && ranks % 2 == 0 ? ranks / 2 : ranks) * rng.between(1, 2);
  p.q_heads = p.kv_heads * rng.between(1, 2);
  return p;
}

// KV heads per lap that every schedule takes.
inline std::int64_t shareable_lap(Rng& rng, const Problem& p, ScheduleKind schedule, int ranks) {
  return schedule == ScheduleKind::kUlysses ? ranks * rng.between(1, 2)
                                            : rng.between(1, p.batch * p.kv_heads);
}

// What the steps say that a rank sends.
inline Traffic planned(const Problem& p, const Layouts& layouts, const RingOptions& options, int rank) {
  return planned_traffic(p, layouts, schedule_steps(options.schedule, p, layouts, rank),
                         make_laps(p, options.heads_per_lap));
}
inline Traffic sent(const RankReport& report) { return {report.bytes_sent, report.hops}; }

}  // namespace kvring::test
