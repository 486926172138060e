// From the products of queries and keys to weights: logits, masks, row maxima, exponentials, per target.
#if defined(KVRING_KERNEL_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_SOFTMAX_INL_H_
#undef KVRING_KERNEL_SOFTMAX_INL_H_
#else
#define KVRING_KERNEL_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <limits>

#include "kernel/blocks.h"
#include "kernel/pack.h"
#include "kernel/repair.h"
#include "kernel/row_finish.h"
#include "kernel/tile.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// From q.k to a logit in log2 units.
struct LogitVectors {
  VF scale, cap;
  explicit LogitVectors(const LogitTransform& t)
      : scale(hn::Set(F32(), t.scale)), cap(hn::Set(F32(), t.cap)) {}

  template <bool kSoftcap>
  HWY_INLINE VF logit(VF dot) const {
    const VF s = hn::Mul(dot, scale);
    return kSoftcap ? hn::Mul(tanh_f32(s), cap) : s;
  }
};

// The largest dot of each row joins row_max.
inline void max_pass(KeyRange range, int rows, const float* HWY_RESTRICT scores,
                     float* HWY_RESTRICT row_max) {
  const F32 f32;
  for_lanes(rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    VF top[kVectors], other[kVectors];  // two chains of maxima each
    for (int j = 0; j < kVectors; ++j) top[j] = other[j] = hn::Load(f32, row_max + lane + j * kLanes);
    std::int64_t key = range.begin;
    for (; key + 1 < range.end; key += 2) {
      const float* s = scores + key * kPanelRows + lane;
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        top[j] = hn::Max(hn::Load(f32, s + j * kLanes), top[j]);
        other[j] = hn::Max(hn::Load(f32, s + kPanelRows + j * kLanes), other[j]);
      }
    }
    for (int j = 0; j < kVectors; ++j) {
      if (key < range.end)
        top[j] = hn::Max(hn::Load(f32, scores + key * kPanelRows + lane + j * kLanes), top[j]);
      hn::Store(hn::Max(other[j], top[j]), f32, row_max + lane + j * kLanes);
    }
  });
}

// Dots of keys [range) become logits in place; the largest of each row joins row_max.
template <bool kSoftcap>
HWY_INLINE void logits_pass(const LogitTransform& transform, KeyRange range, int rows,
                            float* HWY_RESTRICT scores, float* HWY_RESTRICT row_max) {
  const F32 f32;
  const LogitVectors logits(transform);
  for (int lane = 0; lane < rows; lane += kLanes) {
    VF top = hn::Load(f32, row_max + lane);
    for (std::int64_t key = range.begin; key < range.end; ++key) {
      float* at = scores + key * kPanelRows + lane;
      const VF s = logits.logit<kSoftcap>(hn::Load(f32, at));
      hn::Store(s, f32, at);
      top = hn::Max(s, top);
    }
    hn::Store(top, f32, row_max + lane);
  }
}

// Hidden logits become -inf, whatever they were, and the row maxima are taken anew over what is seen.
inline void mask_pass(const RowKeys& seen, KeyRange hull, int rows, float* HWY_RESTRICT scores,
                      float* HWY_RESTRICT row_max) {
  const F32 f32;
  const hn::RebindToSigned<F32> i32;
  const VF none = hn::Set(f32, -std::numeric_limits<float>::infinity());
  for (int lane = 0; lane < rows; lane += kLanes) {
    const auto begin = hn::LoadU(i32, seen.begin + lane);
    const auto end = hn::LoadU(i32, seen.end + lane);
    VF m = none;
    for (std::int64_t key = hull.begin; key < hull.end; ++key) {
      const auto at = hn::Set(i32, static_cast<std::int32_t>(key));
      const auto visible = hn::RebindMask(f32, hn::AndNot(hn::Lt(at, begin), hn::Lt(at, end)));
      float* s = scores + key * kPanelRows + lane;
      const VF logit = hn::IfThenElse(visible, hn::Load(f32, s), none);
      hn::Store(logit, f32, s);
      m = hn::Max(logit, m);
    }
    hn::Store(m, f32, row_max + lane);
  }
}

// From the largest logit of each row to what is subtracted from its logits (in place: finite unless a logit
// is), and to the two factors of the tile's partial: 2^tile_max, a whole number, enters the accumulator, and
// 2^(largest - tile_max) is multiplied in before.
inline void row_maxima(const RowKeys* seen, int rows, float scale, TileScratch& scratch) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  alignas(64) float below[kPanelRows];
  float* row_max = scratch.row_max;
  for (int i = 0; i < kPanelRows; ++i) {
    below[i] = 0;
    row_max[i] *= scale;
    if (i >= rows || (seen && seen->begin[i] >= seen->end[i])) {
      scratch.tile_max[i] = -kInfinity;  // sees nothing here
      row_max[i] = 0;
    } else if (std::fabs(row_max[i]) < kInfinity) {
      scratch.tile_max[i] = std::ceil(row_max[i]);
      below[i] = row_max[i] - scratch.tile_max[i];
    } else {
      // All logits -inf, or one +inf or NaN: the weights come out 0 or NaN by themselves, as in plain
      // attention.
      scratch.tile_max[i] = kSawOnlyZeroWeights;
      row_max[i] = row_max[i] > 0 ? row_max[i] : 0;
    }
  }
  const F32 f32;
  for (std::size_t lane = 0; lane < kPanelRows; lane += hn::Lanes(f32)) {
    hn::Store(exp2_nonpositive(hn::Load(f32, below + lane), kLowestWeight), f32, scratch.factor + lane);
  }
}

// Logits become weights 2^(s - largest), in place, and join `sums`. For the bfloat16 products logits are
// still to be multiplied by `scale`, and the weights are rounded after they were summed.
template <bool kBF16>
inline void weights_pass(KeyRange range, int rows, float scale, TileScratch& scratch,
                         float* HWY_RESTRICT sums) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const VF by = hn::Set(f32, scale);
  for_lanes(rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    VF m[kVectors], l[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      m[j] = hn::Load(f32, scratch.row_max + lane + j * kLanes);
      l[j] = hn::Load(f32, sums + lane + j * kLanes);
    }
    for (std::int64_t key = range.begin; key < range.end; ++key) {
      float* s = scratch.scores + key * kPanelRows + lane;
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        const VF logit = hn::Load(f32, s + j * kLanes);
        const VF t = hn::Sub(kBF16 ? hn::Mul(logit, by) : logit, m[j]);
        VF p = exp2_nonpositive(t, kBF16 ? kLowestBf16Weight : kLowestWeight);
        l[j] = hn::Add(l[j], p);
        if (kBF16) p = hn::BitCast(f32, hn::And(bf16_bits(p), hn::Set(u32, 0xffff0000u)));
        hn::Store(p, f32, s + j * kLanes);
      }
    }
    for (int j = 0; j < kVectors; ++j) hn::Store(l[j], f32, sums + lane + j * kLanes);
  });
}

#if HWY_TARGET == HWY_AVX3
// weights_pass<true> that leaves the weights as the matrix unit takes them: pairs of keys side by side.
inline void weights_to_pairs(KeyRange range, int rows, float scale, TileScratch& scratch,
                             float* HWY_RESTRICT sums) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const VF by = hn::Set(f32, scale);
  for_lanes(rows, [&](auto vectors, int lane) {
    constexpr int kVectors = decltype(vectors)::value;
    VF m[kVectors], l[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      m[j] = hn::Load(f32, scratch.row_max + lane + j * kLanes);
      l[j] = hn::Load(f32, sums + lane + j * kLanes);
    }
    const auto weight = [&](std::int64_t key, int j) {
      const VF dot = hn::Load(f32, scratch.scores + key * kPanelRows + lane + j * kLanes);
      const VF p = exp2_nonpositive(hn::Sub(hn::Mul(dot, by), m[j]), kLowestBf16Weight);
      l[j] = hn::Add(l[j], p);
      return bf16_bits(p);
    };
    const auto store = [&](hn::Vec<decltype(u32)> pairs, std::int64_t key, int j) {
      auto* to = reinterpret_cast<std::uint32_t*>(scratch.weights + pair_index(key, lane + j * kLanes));
      hn::Store(pairs, u32, to);
    };
    std::int64_t key = range.begin;
    for (; key + 1 < range.end; key += 2) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        const auto even = hn::ShiftRight<16>(weight(key, j));
        const auto odd = weight(key + 1, j);
        store(decltype(even){_mm512_mask_blend_epi16(0xaaaaaaaau, even.raw, odd.raw)}, key, j);
      }
    }
    if (key < range.end) {
      for (int j = 0; j < kVectors; ++j) store(hn::ShiftRight<16>(weight(key, j)), key, j);
      key += 2;
    }
    for (; key % kBlockWidth != 0; key += 2) {  // keys past the end
      for (int j = 0; j < kVectors; ++j) store(hn::Zero(u32), key, j);
    }
    for (int j = 0; j < kVectors; ++j) hn::Store(l[j], f32, sums + lane + j * kLanes);
  });
}
#endif

// Whether any of the sums is infinite or NaN.
inline bool any_special(std::int64_t dims, int rows, const float* HWY_RESTRICT partial) {
  const F32 f32;
  // x - x is 0 for finite x and NaN otherwise, and NaN is sticky.
  VF special = hn::Zero(f32);
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    for (int lane = 0; lane < rows; lane += kLanes) {
      const VF x = hn::Load(f32, partial + dim * kPanelRows + lane);
      special = hn::Add(special, hn::Sub(x, x));
    }
  }
  return !hn::AllTrue(f32, hn::Eq(special, special));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
