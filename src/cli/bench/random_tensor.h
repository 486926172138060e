// Input for measurements.
#pragma once

#include <array>
#include <cstdint>

#include "kvring/tensor.h"
#include "tensor/buffer.h"

namespace kvring::cli {

// A dense tensor of normal deviates. Rows are windows at random places of one short table: as fast as a copy,
// and for anything that takes time the same as deviates of their own.
class RandomTensor {
 public:
  RandomTensor(DType dtype, const std::array<std::int64_t, 4>& shape, std::uint32_t seed);
  const TensorView& view() const noexcept { return view_; }

 private:
  AlignedBuffer memory_;
  TensorView view_;
};

}  // namespace kvring::cli
