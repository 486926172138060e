// The kernel's seam: one tile of keys against a few panels of query rows. It knows rows' key intervals, and
// neither masks nor layouts. Runs on the best instruction set of this machine (Highway's dispatch); all of
// them give the same bits, because every sum over dims or keys takes its terms in one fixed order, whatever
// lies in the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/pack.h"
#include "kvring/problem.h"
#include "kvring/tensor.h"
#include "problem/kernel_sizes.h"
#include "tensor/buffer.h"

namespace kvring {

// Keys of the tile that each row of a panel sees: begin <= key < end.
struct RowKeys {
  std::int32_t begin[kPanelRows];
  std::int32_t end[kPanelRows];
};

// From a dot product q.k to a logit in log2 units: dot * scale, or cap * tanh(dot * scale).
struct LogitTransform {
  float scale = 1;
  float cap = 0;  // 0: no softcap
};
LogitTransform make_logit_transform(const Problem& problem);

struct PanelJob {
  PackedQueries q;
  const RowKeys* keys = nullptr;  // null: every row sees every key of the tile
  std::byte* state = nullptr;     // accumulator of the panel, see panel.h
};

struct TileShape : TileDims {
  Accumulation accumulation = Accumulation::kReproducible;
  LogitTransform logits;
};

// Working memory of one thread.
class TileScratch {
 public:
  explicit TileScratch(const TileShape& shape);
  static std::int64_t bytes(const TileShape& shape);

  float* k;                // [max_keys * head_dim], widened 16-bit keys; none for f32
  float* v;                // [max_keys * value_dim]
  float* q;                // [head_dim][48], widened queries of the matrix unit; none but for bf16 products
  float* scores;           // [max_keys][48]: logits, then weights
  std::uint16_t* weights;  // [max_keys / 32][3][16][16][2], of the matrix unit; none but for bf16 products
  float* partial;          // [value_dim + 1][48]: weighted values, then the sum of weights
  float* row_max;          // [48]: the largest logit
  float* tile_max;         // [48]: m of each row; -inf: the row sees no key of this tile
  float* factor;           // [48]: weights are relative to 2^(m + shift) / factor
  std::int32_t* shift;     // [48]

 private:
  AlignedBuffer memory_;
};

// Attends one packed tile and adds the partials to the panels' states. Thread-safe on distinct states and
// scratch.
void attend_tile(const TileShape& shape, const PackedTile& tile, std::span<const PanelJob> panels,
                 TileScratch& scratch);

// One phase of attend_tile() alone, on what the phases before it left in the scratch: for benchmarks.
enum class TilePhase { kWiden, kScores, kWeights, kValues, kDeposit };
void tile_phase(TilePhase phase, const TileShape& shape, const PackedTile& tile, const PanelJob& panel,
                TileScratch& scratch);

// Names of the instruction sets compiled in and runnable here, best first; the best is the one used. AMX is
// AVX3 with the products of bfloat16 in the matrix unit.
std::vector<std::string> kernel_isas();
// Restricts the kernels to one of kernel_isas() (empty: back to the best). For tests; not thread-safe.
void force_kernel_isa(const std::string& name);

// Round to nearest, subnormals kept, on this thread for the life of the object: a host program may have set
// flush-to-zero or another rounding mode, which would change bits.
class FloatEnvironment {
 public:
  FloatEnvironment() noexcept;
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  alignas(16) unsigned char saved_[64];
};

}  // namespace kvring
