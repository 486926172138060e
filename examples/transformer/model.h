// A decoder transformer as in Llama, small and with random weights: what a layer computes besides attention.
// Nothing here talks to another rank.
#pragma once

#include <kvring/layout.h>

#include <vector>

#include "matrix.h"

struct Model {
  static constexpr int kLayers = 2;
  static constexpr std::int64_t kWidth = 128;  // of the hidden states
  static constexpr std::int64_t kQHeads = 8;
  static constexpr std::int64_t kKvHeads = 4;  // each serves two query heads (GQA)
  static constexpr std::int64_t kHeadDim = 16;
  static constexpr std::int64_t kFfnWidth = 256;
  static constexpr std::int64_t kVocabulary = 1000;
  // Heads and feed-forward columns come in so many chunks, and tensor parallelism deals out whole chunks.
  // A power of two: the sums over chunks are a binary tree (worker.h).
  static constexpr int kChunks = 4;
};

// Part `index` of `count` things cut into `parts` nearly equal runs.
kvring::Range part(std::int64_t count, int parts, int index);

// What one rank of `tp` holds of a layer: some columns of the first weight of each block, and the matching
// rows of the second. Nobody makes the whole weight.
struct LayerWeights {
  LayerWeights(int layer, int tp_rank, int tp_size);

  Matrix attention_norm;  // (1, width), whole
  Matrix q, k, v;         // (width, heads here * head dim)
  Matrix out;             // (heads here * head dim, width)
  Matrix ffn_norm;        // (1, width), whole
  Matrix gate, up;        // (width, columns here)
  Matrix down;            // (columns here, width)
};

// The first hidden states (rows, width) of those positions of a batch entry: embeddings of random tokens.
Matrix embed(std::int64_t entry, const kvring::Shard& positions);

// Every row divided by its root mean square, times the gain.
Matrix rms_norm(const Matrix& x, const Matrix& gain);

// Rotary position embedding of heads that lie side by side in each row. A rank's rows are not neighbours in
// the sequence (zigzag), so the angle comes from the shard: where the row stands in the whole sequence.
void rotate(Matrix& heads, const kvring::Shard& positions);

// silu(gate) * up, element by element.
Matrix swiglu(const Matrix& gate, const Matrix& up);
