// The calls of attention by which `kvring plan --calibrate` measures a machine.
#pragma once

#include <cstdint>

#include "kvring/layout.h"
#include "kvring/problem.h"
#include "schedule/parcel.h"

namespace kvring::cli {

// One call of a ring within a rank: one member has all queries and half of the keys, the other the rest of
// the keys, which nobody moves. So all work is the first member's, and it is that of a ring: a rank that is
// alone keeps no accumulators.
struct Call {
  static constexpr int kDim = 128;

  DType dtype;
  std::int64_t queries, keys;
  int heads;

  Problem problem() const {
    Problem p;
    p.q_len = queries;
    p.kv_len = keys;
    p.q_heads = p.kv_heads = heads;
    p.head_dim = p.value_dim = kDim;
    p.q_dtype = p.kv_dtype = p.out_dtype = dtype;
    return p;
  }
  Layouts layouts() const {
    const std::int64_t half = keys / 2;
    return {{{LayoutKind::kCustom}, queries, {Shard({{0, queries}}), Shard()}},
            {{LayoutKind::kCustom}, keys, {Shard({{0, half}}), Shard({{half, keys}})}}};
  }
  double operations() const {
    return 4.0 * kDim * static_cast<double>(queries) * static_cast<double>(keys) * heads;
  }
  double key_bytes() const { return bytes(keys); }  // and values
  double row_bytes() const {                        // queries, outputs, accumulators
    return bytes(queries) +
           static_cast<double>(parcel_bytes(problem(), layouts(), Cargo::kPartials, 0, heads));
  }

 private:
  double bytes(std::int64_t tokens) const {
    return 2.0 * kDim * static_cast<double>(dtype_bytes(dtype)) * static_cast<double>(tokens) * heads;
  }
};

inline constexpr DType kMeasuredDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
// Nearly all of a long call is arithmetic, half of a short one is not. One query passes its keys.
inline Call long_call(DType dtype, int threads) { return {dtype, 4096, 4096, threads}; }
inline Call short_call(int threads) { return {DType::kF32, 256, 1024, 16 * threads}; }
inline Call keys_call(int threads) { return {DType::kF32, 1, std::int64_t{1} << 16, threads}; }

}  // namespace kvring::cli
