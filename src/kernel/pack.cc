#include "kernel/pack.h"

#include <algorithm>

#include "kernel/tile.h"

namespace kvring {
namespace {

template <typename T>
const T* row_pointer(const HeadRows& s, std::int64_t row) {
  return static_cast<const T*>(s.tensor->data) + s.tensor->offset(s.b, s.first + row, s.h);
}

template <typename T>
void pack_keys_as(const HeadRows& source, T* to) {
  const std::int64_t dim = source.tensor->shape[3];
  for (std::int64_t group = 0; group < source.rows; group += kGroup) {
    const std::int64_t width = std::min<std::int64_t>(kGroup, source.rows - group);
    for (std::int64_t i = 0; i < width; ++i) {
      const T* from = row_pointer<T>(source, group + i);
      for (std::int64_t d = 0; d < dim; ++d) to[d * width + i] = from[d];
    }
    to += dim * width;
  }
}

template <typename T>
void pack_values_as(const HeadRows& source, T* to) {
  const std::int64_t dim = source.tensor->shape[3];
  for (std::int64_t row = 0; row < source.rows; ++row) {
    const T* from = row_pointer<T>(source, row);
    for (std::int64_t group = 0; group < dim; group += kGroup) {
      const std::int64_t width = std::min<std::int64_t>(kGroup, dim - group);
      std::copy_n(from + group, width, to + group * source.rows + row * width);
    }
  }
}

template <typename T, typename Widen>
void pack_queries_as(const T* data, std::int64_t dim, const std::int64_t* row_offsets, int rows, float* to,
                     Widen widen) {
  for (int i = 0; i < kPanelRows; ++i) {
    for (std::int64_t d = 0; d < dim; ++d)
      to[d * kPanelRows + i] = i < rows ? widen(data[row_offsets[i] + d]) : 0.0f;
  }
}

}  // namespace

// Moving bits, not values: float32 and 16-bit types only differ in width.
void pack_keys(const HeadRows& source, std::byte* to) {
  if (source.tensor->dtype == DType::kF32) {
    pack_keys_as(source, reinterpret_cast<float*>(to));
  } else {
    pack_keys_as(source, reinterpret_cast<std::uint16_t*>(to));
  }
}

void pack_values(const HeadRows& source, std::byte* to) {
  if (source.tensor->dtype == DType::kF32) {
    pack_values_as(source, reinterpret_cast<float*>(to));
  } else {
    pack_values_as(source, reinterpret_cast<std::uint16_t*>(to));
  }
}

void pack_queries(const ConstTensorView& tensor, const std::int64_t* row_offsets, int rows, float* to) {
  const std::int64_t dim = tensor.shape[3];
  const auto* bits = static_cast<const std::uint16_t*>(tensor.data);
  switch (tensor.dtype) {
    case DType::kF32:
      pack_queries_as(static_cast<const float*>(tensor.data), dim, row_offsets, rows, to,
                      [](float x) { return x; });
      return;
    case DType::kBF16:
      pack_queries_as(bits, dim, row_offsets, rows, to, bf16_to_float);
      return;
    case DType::kF16:
      pack_queries_as(bits, dim, row_offsets, rows, to, f16_to_float);
      return;
  }
}

}  // namespace kvring
