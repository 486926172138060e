// How both operands of the bfloat16 products are packed: matrices of blocks of 16 rows x 32 columns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/kernel_sizes.h"

namespace kvring {

inline constexpr std::int64_t kBlockHeight = 16;

// Blocks lie row of blocks by row of blocks, each row-major; the last ones of a row or column are as narrow
// or low as what is left. So there is no padding.
template <typename T>
struct BlockMatrix {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0;

  std::int64_t height(std::int64_t row) const noexcept { return std::min(kBlockHeight, rows - row); }
  std::int64_t width(std::int64_t column) const noexcept { return std::min(kBlockWidth, columns - column); }
  // First element of the block that begins at (row, column), multiples of the block; its rows are
  // width(column) apart.
  T* block(std::int64_t row, std::int64_t column) const noexcept {
    return data + row * columns + column * height(row);
  }
  T& at(std::int64_t row, std::int64_t column) const noexcept {
    const std::int64_t r = row / kBlockHeight * kBlockHeight, c = column / kBlockWidth * kBlockWidth;
    return block(r, c)[(row - r) * width(c) + (column - c)];
  }
};

}  // namespace kvring
