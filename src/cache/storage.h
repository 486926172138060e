// The keys and values of one layer on one rank, packed as the kernel reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "kvring/problem.h"
#include "kvring/tensor.h"
#include "runtime/block.h"
#include "runtime/rank_tensors.h"
#include "tensor/buffer.h"

namespace kvring {

class LayerStorage {
 public:
  // Takes the memory for `rows` tokens of every KV unit.
  LayerStorage(const Problem& problem, std::int64_t rows);
  static std::int64_t bytes(const Problem& problem, std::int64_t rows);

  // Appends the rows of k and v (batch, tokens, kv_heads, dim), which `map`, the block of the shard with
  // them, has as its last. A tile that other rows are still to join is kept as it came, too.
  void append(const BlockMap& map, const ConstTensorView& k, const ConstTensorView& v);

  PackedKeys packed() const noexcept { return {packed_.data(), unit_bytes_}; }

 private:
  struct Side {          // keys or values
    AlignedBuffer tail;  // (batch, tile, kv_heads, dim): the rows of the last tile
    TensorView view;
  };
  static Side make_side(const Problem& problem, std::int64_t dim);
  void keep_tail(Side& side, const ConstTensorView& from, std::int64_t first, std::int64_t at,
                 std::int64_t rows);

  Problem problem_;
  std::int64_t unit_bytes_;
  AlignedBuffer packed_;  // [unit][rows]: pieces in order, each K then V
  Side k_, v_;
  std::int64_t rows_ = 0;
};

}  // namespace kvring
