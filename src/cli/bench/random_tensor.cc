#include "cli/bench/random_tensor.h"

#include <cstring>
#include <random>

namespace kvring::cli {

RandomTensor::RandomTensor(DType dtype, const std::array<std::int64_t, 4>& shape, std::uint32_t seed) {
  constexpr std::int64_t kPlaces = 4096;
  const auto element = static_cast<std::int64_t>(dtype_bytes(dtype));
  const std::int64_t dim = shape[3];
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  AlignedBuffer table((kPlaces + dim) * element);
  for (std::int64_t i = 0; i < kPlaces + dim; ++i) store_element(table.data(), dtype, i, normal(random));
  view_ = dense_view<void>(nullptr, dtype, shape);
  memory_ = AlignedBuffer(view_.elements() * element);
  view_.data = memory_.data();
  std::uniform_int_distribution<std::int64_t> place(0, kPlaces - 1);
  for (std::int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    std::memcpy(memory_.data() + row * dim * element, table.data() + place(random) * element,
                static_cast<std::size_t>(dim * element));
  }
}

}  // namespace kvring::cli
