// The matrix unit of x86 (AMX): products of bfloat16 blocks. Built where the compiler knows it, used where
// the processor has it and the system grants it.
#pragma once

#include <cstdint>

#include "kernel/blocks.h"
#include "kernel/repair.h"

namespace kvring {

// Whether this machine can; asks the system once.
bool amx_supported() noexcept;
// Whether the kernels use it now: supported, and not switched off.
bool amx_in_use() noexcept;
void amx_switch(bool on) noexcept;  // for tests; not thread-safe

// A bfloat16 that is not 0 and below 2^-56. Where both factors are 0 or larger, every product and every sum
// of products is a multiple of 2^-126, so nothing can be subnormal: the unit takes subnormal numbers for 0.
constexpr bool is_tiny(std::uint16_t bf16) noexcept {
  const int magnitude = bf16 & 0x7fff;
  return magnitude != 0 && magnitude < (127 - 56) << 7;
}

// The tile registers of this thread, configured for the life of the object.
class AmxTiles {
 public:
  AmxTiles() noexcept;
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

// A part of a matrix: rows [begin, end) in multiples of 16 or to the last, columns likewise of 32.
struct AmxOperand {
  BlockMatrix<const std::uint16_t> matrix;
  KeyRange rows, columns;
  bool check;  // whether anything in it is tiny
};

// block_multiply() of blocks-inl.h with bfloat16 operands, to the bit where nothing is tiny. Needs AmxTiles.
// b: [columns / 32][3][16][16][2] (block of columns, vector of rows, pair of columns, row, parity); columns
// past the end are 0. b and c are indexed by absolute column and row.
//
// With `check` they return whether anything in `a` is tiny, so that c is worthless: looked for while the
// blocks are in the first-level cache, where it costs least.
bool amx_multiply(const AmxOperand& a, const std::uint16_t* b, int query_rows, float* c) noexcept;
// The same added to what c holds: columns may come in several ranges, ascending.
bool amx_multiply_add(const AmxOperand& a, const std::uint16_t* b, int query_rows, float* c) noexcept;

}  // namespace kvring
