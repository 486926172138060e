#include "kernel/pack.h"

#include <algorithm>

#include "kernel/amx.h"
#include "kernel/blocks.h"
#include "tensor/buffer.h"

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

void pack_keys_in_blocks(const HeadRows& source, std::uint16_t* to) {
  const BlockMatrix<std::uint16_t> matrix{to, source.rows, source.tensor->shape[3]};
  for (std::int64_t key = 0; key < matrix.rows; ++key) {
    const auto* from = row_pointer<std::uint16_t>(source, key);
    for (std::int64_t dim = 0; dim < matrix.columns; dim += kBlockWidth)
      std::copy_n(from + dim, matrix.width(dim), &matrix.at(key, dim));
  }
}

void pack_values_in_blocks(const HeadRows& source, std::uint16_t* to) {
  const BlockMatrix<std::uint16_t> matrix{to, source.tensor->shape[3], source.rows};
  for (std::int64_t key = 0; key < matrix.columns; ++key) {
    const auto* from = row_pointer<std::uint16_t>(source, key);
    const std::int64_t column = key / kBlockWidth * kBlockWidth;
    const std::int64_t width = matrix.width(column);
    for (std::int64_t dim = 0; dim < matrix.rows; dim += kBlockHeight) {
      std::uint16_t* block = matrix.block(dim, column) + (key - column);
      const std::int64_t height = matrix.height(dim);
      for (std::int64_t i = 0; i < height; ++i) block[i * width] = from[dim + i];
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

PackedQueries pack_query_pairs(const std::uint16_t* data, std::int64_t dim, const std::int64_t* row_offsets,
                               int rows, std::uint16_t* to) {
  std::fill_n(to, round_up(dim, kBlockWidth) * kPanelRows, std::uint16_t{0});
  bool tiny = false;
  for (int i = 0; i < rows; ++i) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const std::uint16_t x = data[row_offsets[i] + d];
      tiny |= is_tiny(x);
      to[pair_index(d, i)] = x;
    }
  }
  return {reinterpret_cast<const std::byte*>(to), rows, tiny};
}

}  // namespace

// Moving bits, not values: float32 and 16-bit types only differ in width.
void pack_keys(Products products, const HeadRows& source, std::byte* to) {
  if (products == Products::kBF16) {
    pack_keys_in_blocks(source, reinterpret_cast<std::uint16_t*>(to));
  } else if (source.tensor->dtype == DType::kF32) {
    pack_keys_as(source, reinterpret_cast<float*>(to));
  } else {
    pack_keys_as(source, reinterpret_cast<std::uint16_t*>(to));
  }
}

void pack_values(Products products, const HeadRows& source, std::byte* to) {
  if (products == Products::kBF16) {
    pack_values_in_blocks(source, reinterpret_cast<std::uint16_t*>(to));
  } else if (source.tensor->dtype == DType::kF32) {
    pack_values_as(source, reinterpret_cast<float*>(to));
  } else {
    pack_values_as(source, reinterpret_cast<std::uint16_t*>(to));
  }
}

PackedQueries pack_queries(Products products, const ConstTensorView& tensor, const std::int64_t* row_offsets,
                           int rows, std::byte* to) {
  const std::int64_t dim = tensor.shape[3];
  const auto* bits = static_cast<const std::uint16_t*>(tensor.data);
  if (products == Products::kBF16 && amx_in_use())
    return pack_query_pairs(bits, dim, row_offsets, rows, reinterpret_cast<std::uint16_t*>(to));
  auto* floats = reinterpret_cast<float*>(to);
  switch (tensor.dtype) {
    case DType::kF32:
      pack_queries_as(static_cast<const float*>(tensor.data), dim, row_offsets, rows, floats,
                      [](float x) { return x; });
      break;
    case DType::kBF16:
      pack_queries_as(bits, dim, row_offsets, rows, floats, bf16_to_float);
      break;
    case DType::kF16:
      pack_queries_as(bits, dim, row_offsets, rows, floats, f16_to_float);
      break;
  }
  return {to, rows, false};
}

}  // namespace kvring
