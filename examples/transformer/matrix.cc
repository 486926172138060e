#include "matrix.h"

Matrix multiply(const Matrix& x, const Matrix& w, const kvring::Range& rows) {
  Matrix product(x.rows, w.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float* to = product.row(i);
    for (std::int64_t k = rows.begin; k < rows.end; ++k) {
      const float factor = x.row(i)[k];
      const float* from = w.row(k);
      for (std::int64_t j = 0; j < w.columns; ++j) to[j] += factor * from[j];
    }
  }
  return product;
}

void add(Matrix& x, const Matrix& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
}

std::uint64_t scramble(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

float random_number(std::uint64_t key) { return static_cast<float>(scramble(key) >> 40) * 0x1p-23f - 1.0f; }
