// Matrices of float32, and numbers that look random and are the same wherever they are computed.
#pragma once

#include <kvring/layout.h>

#include <cstdint>
#include <vector>

// Row-major.
struct Matrix {
  Matrix(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count), columns(column_count), values(static_cast<std::size_t>(rows * columns)) {}
  float* row(std::int64_t i) { return values.data() + i * columns; }
  const float* row(std::int64_t i) const { return values.data() + i * columns; }

  std::int64_t rows, columns;
  std::vector<float> values;
};

// The columns `rows` of x times the same rows of w: (x.rows, w.columns). Each element is one chain of
// additions in rising order of the row of w, so its bits do not depend on how many rows x or columns w has: a
// rank with some columns of a weight computes what one with all of them does.
Matrix multiply(const Matrix& x, const Matrix& w, const kvring::Range& rows);
inline Matrix multiply(const Matrix& x, const Matrix& w) { return multiply(x, w, {0, w.rows}); }

// x += y, element by element.
void add(Matrix& x, const Matrix& y);

// SplitMix64's finaliser: scrambles 64 bits.
std::uint64_t scramble(std::uint64_t bits);
// In [-1, 1), from the key alone; exact in float32.
float random_number(std::uint64_t key);
