// From the accumulators of a panel to finished rows, per target.
#if defined(KVRING_KERNEL_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_FINISH_INL_H_
#undef KVRING_KERNEL_FINISH_INL_H_
#else
#define KVRING_KERNEL_FINISH_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/bins.h"
#include "kernel/panel.h"
#include "kernel/repair.h"
#include "kernel/row_finish.h"
#include "kernel/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

// Totals of one element of the state, kLanes64 rows from `lane` on.
inline VD total_of(const PanelState& state, std::int64_t element, int lane) {
  const F64 f64;
  if (state.accumulation == Accumulation::kOnline) {
    const hn::Rebind<float, F64> half;
    return hn::PromoteTo(f64, hn::Load(half, state.online + element * kPanelRows + lane));
  }
  const hn::RebindToUnsigned<F64> u64;
  const double* at = state.binned + 2 * element * kPanelRows + lane;
  const VD hi = hn::Load(f64, at);
  const auto prime = hn::OrAnd(hn::Set(u64, kHalfBit), hn::BitCast(u64, hi), hn::Set(u64, kExponentBits));
  return hn::Add(hn::Sub(hi, hn::BitCast(f64, prime)), hn::Load(f64, at + kPanelRows));
}

// To float32, rounded, beyond it infinite.
HWY_INLINE hn::Vec<hn::Rebind<float, F64>> narrowed(VD x) {
#if HWY_TARGET == HWY_SCALAR  // Highway's stops at the largest float
  return hn::Set(hn::Rebind<float, F64>(), static_cast<float>(hn::GetLane(x)));
#else
  return hn::DemoteTo(hn::Rebind<float, F64>(), x);
#endif
}

// To the precision of a 16-bit type: round_to_precision() of src/tensor/dtype.cc.
HWY_INLINE VD rounded(VD x, int digits, int smallest) {
  const F64 f64;
  const hn::RebindToSigned<F64> i64;
  const VD size = hn::Abs(x);
  // Beyond every float there is nothing to round, and the unit would overflow.
  const auto small = hn::Lt(size, hn::Set(f64, 0x1p129));
  const auto exponent = hn::ShiftRight<52>(hn::BitCast(i64, hn::IfThenElseZero(small, size)));
  const auto place = hn::Max(hn::Sub(exponent, hn::Set(i64, digits - 1)), hn::Set(i64, smallest + 1023));
  const VD magic = hn::Mul(hn::Set(f64, 0x1.8p52), hn::BitCast(f64, hn::ShiftLeft<52>(place)));
  const VD near = hn::CopySign(hn::Sub(hn::Add(size, magic), magic), x);
  return hn::IfThenElse(small, near, x);
}

// Rows as float32 that is exact in `dtype` (or beyond it) to `to` [value_dim][48].
inline void finish_values(const PanelState& state, int rows, const double* HWY_RESTRICT reciprocal,
                          DType dtype, float* HWY_RESTRICT to) {
  const F64 f64;
  const hn::Rebind<float, F64> half;
  const VD infinity = hn::Set(f64, std::numeric_limits<double>::infinity());
  for (std::int64_t d = 0; d < state.value_dim; ++d) {
    for (int lane = 0; lane < rows; lane += kLanes64) {
      const VD total = total_of(state, d, lane);
      const VD by = hn::Load(f64, reciprocal + lane);
      // An infinite total stays, whatever the weight, unless the row is NaN.
      const auto kept = hn::And(hn::Eq(hn::Abs(total), infinity), hn::Eq(by, by));
      VD x = hn::IfThenElse(kept, total, hn::Mul(total, by));
      x = hn::IfThenElse(hn::Eq(x, x), x, hn::Set(f64, std::numeric_limits<double>::quiet_NaN()));
      if (dtype == DType::kBF16) x = rounded(x, 8, -133);
      if (dtype == DType::kF16) x = rounded(x, 11, -24);
      hn::Store(narrowed(x), half, to + d * kPanelRows + lane);
    }
  }
}

inline void panel_finish_target(const PanelState& state, std::span<const FinishRow> rows, DType dtype,
                                float* lse, float* scratch) {
  alignas(64) double totals[kPanelRows];
  alignas(64) double reciprocal[kPanelRows] = {};
  const int count = static_cast<int>(rows.size());
  for (int lane = 0; lane < count; lane += kLanes64)
    hn::Store(total_of(state, state.value_dim, lane), F64(), totals + lane);
  for (int i = 0; i < count; ++i) {
    const RowFinish row = finish_row(state.reference[i], totals[i], rows[static_cast<std::size_t>(i)].sink);
    reciprocal[i] = row.reciprocal;
    lse[i] = row.lse;
  }
  finish_values(state, count, reciprocal, dtype, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
