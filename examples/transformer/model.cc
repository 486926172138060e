#include "model.h"

#include <cmath>

namespace {

constexpr float kNormEpsilon = 1e-5f;
constexpr double kRopeBase = 10000;

enum Kind : std::uint64_t {
  kToken,
  kEmbedding,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kOut,
  kFfnNorm,
  kGate,
  kUp,
  kDown
};

// A key of its own for every number of the model.
std::uint64_t key(Kind kind, std::int64_t layer, std::int64_t row, std::int64_t column) {
  return scramble(kind * 64 + static_cast<std::uint64_t>(layer)) +
         static_cast<std::uint64_t>(row << 32 | column);
}

// The given rows and columns of a weight of `height` rows. Variance 1/height keeps activations near 1.
Matrix weight(Kind kind, int layer, std::int64_t height, kvring::Range rows, kvring::Range columns) {
  const float scale = std::sqrt(3.0f / static_cast<float>(height));
  Matrix w(rows.size(), columns.size());
  for (std::int64_t i = 0; i < w.rows; ++i)
    for (std::int64_t j = 0; j < w.columns; ++j)
      w.row(i)[j] = scale * random_number(key(kind, layer, rows.begin + i, columns.begin + j));
  return w;
}

Matrix norm_gain(Kind kind, int layer) {
  Matrix gain(1, Model::kWidth);
  for (std::int64_t j = 0; j < gain.columns; ++j)
    gain.values[static_cast<std::size_t>(j)] = 1 + random_number(key(kind, layer, 0, j)) / 8;
  return gain;
}

}  // namespace

kvring::Range part(std::int64_t count, int parts, int index) {
  return {count * index / parts, count * (index + 1) / parts};
}

LayerWeights::LayerWeights(int layer, int tp_rank, int tp_size)
    : attention_norm(norm_gain(kAttentionNorm, layer)),
      q(weight(kQ, layer, Model::kWidth, {0, Model::kWidth},
               part(Model::kQHeads * Model::kHeadDim, tp_size, tp_rank))),
      k(weight(kK, layer, Model::kWidth, {0, Model::kWidth},
               part(Model::kKvHeads * Model::kHeadDim, tp_size, tp_rank))),
      v(weight(kV, layer, Model::kWidth, {0, Model::kWidth},
               part(Model::kKvHeads * Model::kHeadDim, tp_size, tp_rank))),
      out(weight(kOut, layer, Model::kQHeads * Model::kHeadDim,
                 part(Model::kQHeads * Model::kHeadDim, tp_size, tp_rank), {0, Model::kWidth})),
      ffn_norm(norm_gain(kFfnNorm, layer)),
      gate(weight(kGate, layer, Model::kWidth, {0, Model::kWidth}, part(Model::kFfnWidth, tp_size, tp_rank))),
      up(weight(kUp, layer, Model::kWidth, {0, Model::kWidth}, part(Model::kFfnWidth, tp_size, tp_rank))),
      down(weight(kDown, layer, Model::kFfnWidth, part(Model::kFfnWidth, tp_size, tp_rank),
                  {0, Model::kWidth})) {}

Matrix embed(std::int64_t entry, const kvring::Shard& positions) {
  Matrix x(positions.tokens(), Model::kWidth);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const std::uint64_t token = scramble(key(kToken, 0, entry, positions.position(i))) % Model::kVocabulary;
    for (std::int64_t j = 0; j < x.columns; ++j)
      x.row(i)[j] = random_number(key(kEmbedding, 0, static_cast<std::int64_t>(token), j));
  }
  return x;
}

Matrix rms_norm(const Matrix& x, const Matrix& gain) {
  Matrix normed(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float squares = 0;
    for (std::int64_t j = 0; j < x.columns; ++j) squares += x.row(i)[j] * x.row(i)[j];
    const float scale = 1 / std::sqrt(squares / static_cast<float>(x.columns) + kNormEpsilon);
    for (std::int64_t j = 0; j < x.columns; ++j) normed.row(i)[j] = x.row(i)[j] * scale * gain.row(0)[j];
  }
  return normed;
}

void rotate(Matrix& heads, const kvring::Shard& positions) {
  constexpr std::int64_t kHalf = Model::kHeadDim / 2;
  for (std::int64_t i = 0; i < heads.rows; ++i) {
    for (std::int64_t d = 0; d < kHalf; ++d) {
      const double angle = static_cast<double>(positions.position(i)) *
                           std::pow(kRopeBase, -static_cast<double>(d) / static_cast<double>(kHalf));
      const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
      for (float* head = heads.row(i); head < heads.row(i) + heads.columns; head += Model::kHeadDim) {
        const float a = head[d], b = head[d + kHalf];
        head[d] = a * cosine - b * sine;
        head[d + kHalf] = b * cosine + a * sine;
      }
    }
  }
}

Matrix swiglu(const Matrix& gate, const Matrix& up) {
  Matrix product(gate.rows, gate.columns);
  for (std::size_t i = 0; i < product.values.size(); ++i)
    product.values[i] = gate.values[i] / (1 + std::exp(-gate.values[i])) * up.values[i];
  return product;
}
