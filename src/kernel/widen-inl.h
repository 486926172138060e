// 16-bit elements to float32, exactly, per target.
#if defined(KVRING_KERNEL_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVRING_KERNEL_WIDEN_INL_H_
#undef KVRING_KERNEL_WIDEN_INL_H_
#else
#define KVRING_KERNEL_WIDEN_INL_H_
#endif

#include "kernel/vector-inl.h"
#include "kvring/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace kvring {
namespace HWY_NAMESPACE {

inline void widen_bf16(const std::uint16_t* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const hn::Rebind<std::uint16_t, F32> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, from + i)))), f32,
               to + i);
  }
  for (; i < count; ++i) to[i] = bf16_to_float(from[i]);
}

// f16 by integer steps on every target, so that subnormals, infinities and NaN come out the same: shift into
// the float32 fields, then multiply by 2^112 to move the exponent (exact, and it normalises subnormals).
inline void widen_f16(const std::uint16_t* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  const F32 f32;
  const hn::RebindToUnsigned<F32> u32;
  const hn::Rebind<std::uint16_t, F32> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f32));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::PromoteTo(u32, hn::LoadU(u16, from + i));
    const auto magnitude = hn::And(bits, hn::Set(u32, 0x7fffu));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto special = hn::Gt(magnitude, hn::Set(u32, 0x7bffu));
    const auto finite =
        hn::BitCast(u32, hn::Mul(hn::BitCast(f32, hn::ShiftLeft<13>(magnitude)), hn::Set(f32, 0x1p112f)));
    const auto nonfinite = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(u32, 0x7f800000u));
    hn::StoreU(hn::BitCast(f32, hn::Or(hn::IfThenElse(special, nonfinite, finite), sign)), f32, to + i);
  }
  for (; i < count; ++i) to[i] = f16_to_float(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvring
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
