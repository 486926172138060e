#include "kernel/amx.h"

#include <algorithm>

#include "kernel/pack.h"

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define KVRING_AMX 1
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvring {
namespace {

bool off = false;

}  // namespace

bool amx_in_use() noexcept { return !off && amx_supported(); }
void amx_switch(bool on) noexcept { off = !on; }

#ifdef KVRING_AMX
#define KVRING_AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512bw")))

namespace {

bool cpu_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  return (d & kBf16) && (d & kTile);
}

// Linux gives the registers to programs that ask, since their state is 8 KiB.
bool system_grants_amx() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// In memory before the program starts: the intrinsic does not tell GCC that it reads all of it.
constinit const TileConfig kTileConfig;

// Functions, since attributes of constructors are lost.
KVRING_AMX_TARGET void load_config() { _tile_loadconfig(&kTileConfig); }
KVRING_AMX_TARGET void release() { _tile_release(); }

// A block filled up with zeros.
void pad(const BlockMatrix<const std::uint16_t>& a, std::int64_t row, std::int64_t column,
         std::uint16_t* to) {
  std::fill_n(to, kBlockHeight * kBlockWidth, std::uint16_t{0});
  const std::int64_t width = a.width(column);
  for (std::int64_t i = 0; i < a.height(row); ++i)
    std::copy_n(a.block(row, column) + i * width, width, to + i * kBlockWidth);
}

constexpr std::int64_t kVectorBlock = kBlockWidth * 16;          // elements of b for one vector of rows
constexpr std::int64_t kColumnBlock = kBlockWidth * kPanelRows;  // and for all
constexpr std::int64_t kStrideC = kPanelRows * 4;

// The smallest magnitudes of the numbers seen, less 1: that makes 0 the largest.
struct Least {
  alignas(64) std::uint16_t magnitude[32];
};
KVRING_AMX_TARGET inline void look(const std::uint16_t* block, Least& least) {
  __m512i smallest = _mm512_load_si512(least.magnitude);
  for (int row = 0; row < kBlockHeight; ++row) {
    const __m512i x =
        _mm512_and_si512(_mm512_loadu_si512(block + row * kBlockWidth), _mm512_set1_epi16(0x7fff));
    smallest = _mm512_min_epu16(smallest, _mm512_sub_epi16(x, _mm512_set1_epi16(1)));
  }
  _mm512_store_si512(least.magnitude, smallest);
}

// Elements that a block is asked for before it is needed; of 1 Ki to 32 Ki, 8 Ki and 16 Ki were best.
constexpr std::int64_t kFetchAhead = 8192;

// A block into the first-level cache.
void fetch(const std::uint16_t* block) {
  for (int row = 0; row < kBlockHeight; ++row) __builtin_prefetch(block + row * kBlockWidth);
}

// The intrinsics of GCC take literal numbers of tiles only.
#define KVRING_TILE_SWITCH(tile, OPERATION) \
  switch (tile) {                           \
    case 0:                                 \
      OPERATION(0);                         \
      break;                                \
    case 1:                                 \
      OPERATION(1);                         \
      break;                                \
    case 2:                                 \
      OPERATION(2);                         \
      break;                                \
    case 3:                                 \
      OPERATION(3);                         \
      break;                                \
    case 4:                                 \
      OPERATION(4);                         \
      break;                                \
    default:                                \
      OPERATION(5);                         \
  }

template <int kTile>
KVRING_AMX_TARGET inline void zero_tile() {
#define KVRING_OPERATION(tile) _tile_zero(tile)
  KVRING_TILE_SWITCH(kTile, KVRING_OPERATION)
#undef KVRING_OPERATION
}
template <int kTile>
KVRING_AMX_TARGET inline void load_tile(const float* from) {
#define KVRING_OPERATION(tile) _tile_loadd(tile, from, kStrideC)
  KVRING_TILE_SWITCH(kTile, KVRING_OPERATION)
#undef KVRING_OPERATION
}
template <int kTile>
KVRING_AMX_TARGET inline void store_tile(float* to) {
#define KVRING_OPERATION(tile) _tile_stored(tile, to, kStrideC)
  KVRING_TILE_SWITCH(kTile, KVRING_OPERATION)
#undef KVRING_OPERATION
}
// Adds the product of tiles 6 and 7.
template <int kTile>
KVRING_AMX_TARGET inline void multiply_tile() {
#define KVRING_OPERATION(tile) _tile_dpbf16ps(tile, 6, 7)
  KVRING_TILE_SWITCH(kTile, KVRING_OPERATION)
#undef KVRING_OPERATION
}
#undef KVRING_TILE_SWITCH

// One row of blocks of `a` against kVectors vectors, into tiles kTile and following. Tiles 6 and 7 take
// operands.
template <bool kAdd, int kVectors, int kTile>
KVRING_AMX_TARGET inline void compute_row(const AmxOperand& operand, std::int64_t row, const std::uint16_t* b,
                                          const float* c, Least& least) {
  const BlockMatrix<const std::uint16_t>& a = operand.matrix;
  const bool low = a.height(row) < kBlockHeight;
  if (kAdd) {
    const float* from = c + row * kPanelRows;
    alignas(64) float full[kBlockHeight * kPanelRows];
    if (low) {
      std::copy_n(from, a.height(row) * kPanelRows, full);
      from = full;
    }
    load_tile<kTile>(from);
    if (kVectors > 1) load_tile<kTile + 1>(from + 16);
    if (kVectors > 2) load_tile<kTile + 2>(from + 32);
  } else {
    zero_tile<kTile>();
    if (kVectors > 1) zero_tile<kTile + 1>();
    if (kVectors > 2) zero_tile<kTile + 2>();
  }
  for (std::int64_t column = operand.columns.begin; column < operand.columns.end; column += kBlockWidth) {
    const std::uint16_t* block = a.block(row, column);
    // With few rows, as in decode, memory is the limit: packed blocks are read front to back.
    if (kVectors == 1) fetch(block + kFetchAhead);
    alignas(64) std::uint16_t padded[kBlockHeight * kBlockWidth];
    if (low || a.width(column) < kBlockWidth) {
      pad(a, row, column, padded);
      block = padded;
    }
    const std::uint16_t* at = b + column / kBlockWidth * kColumnBlock;
    _tile_loadd(6, block, 64);
    _tile_loadd(7, at, 64);
    multiply_tile<kTile>();
    if (kVectors > 1) {
      _tile_loadd(7, at + kVectorBlock, 64);
      multiply_tile<kTile + 1>();
    }
    if (kVectors > 2) {
      _tile_loadd(7, at + 2 * kVectorBlock, 64);
      multiply_tile<kTile + 2>();
    }
    if (operand.check) look(block, least);
  }
}

template <int kVectors, int kTile>
KVRING_AMX_TARGET inline void store_row(const AmxOperand& operand, std::int64_t row, float* c) {
  float* to = c + row * kPanelRows;
  alignas(64) float full[kBlockHeight * kPanelRows];
  const std::int64_t height = operand.matrix.height(row);
  const bool low = height < kBlockHeight;
  float* at = low ? full : to;
  store_tile<kTile>(at);
  if (kVectors > 1) store_tile<kTile + 1>(at + 16);
  if (kVectors > 2) store_tile<kTile + 2>(at + 32);
  if (!low) return;
  for (std::int64_t i = 0; i < height; ++i)
    std::copy_n(full + i * kPanelRows, 16 * kVectors, to + i * kPanelRows);
}

// Two sets of tiles take turns: a row is stored while the next one is computed.
template <bool kAdd, int kVectors>
KVRING_AMX_TARGET void multiply_rows(const AmxOperand& a, const std::uint16_t* b, float* c, Least& least) {
  std::int64_t row = a.rows.begin;
  if (row >= a.rows.end) return;
  compute_row<kAdd, kVectors, 0>(a, row, b, c, least);
  for (; row + 2 * kBlockHeight < a.rows.end; row += 2 * kBlockHeight) {
    compute_row<kAdd, kVectors, 3>(a, row + kBlockHeight, b, c, least);
    store_row<kVectors, 0>(a, row, c);
    compute_row<kAdd, kVectors, 0>(a, row + 2 * kBlockHeight, b, c, least);
    store_row<kVectors, 3>(a, row + kBlockHeight, c);
  }
  const bool another = row + kBlockHeight < a.rows.end;
  if (another) compute_row<kAdd, kVectors, 3>(a, row + kBlockHeight, b, c, least);
  store_row<kVectors, 0>(a, row, c);
  if (another) store_row<kVectors, 3>(a, row + kBlockHeight, c);
}

template <bool kAdd>
bool multiply(const AmxOperand& a, const std::uint16_t* b, int query_rows, float* c) {
  const auto rows = query_rows > 32   ? multiply_rows<kAdd, 3>
                    : query_rows > 16 ? multiply_rows<kAdd, 2>
                                      : multiply_rows<kAdd, 1>;
  Least least;
  std::fill_n(least.magnitude, 32, std::uint16_t{0xffff});
  rows(a, b, c, least);
  return std::any_of(least.magnitude, least.magnitude + 32,
                     [](std::uint16_t x) { return is_tiny(static_cast<std::uint16_t>(x + 1)); });
}

}  // namespace

bool amx_supported() noexcept {
  static const bool kSupported = cpu_has_amx() && system_grants_amx();
  return kSupported;
}

AmxTiles::AmxTiles() noexcept { load_config(); }
AmxTiles::~AmxTiles() { release(); }

bool amx_multiply(const AmxOperand& a, const std::uint16_t* b, int query_rows, float* c) noexcept {
  return multiply<false>(a, b, query_rows, c);
}
bool amx_multiply_add(const AmxOperand& a, const std::uint16_t* b, int query_rows, float* c) noexcept {
  return multiply<true>(a, b, query_rows, c);
}

#else

bool amx_supported() noexcept { return false; }
AmxTiles::AmxTiles() noexcept = default;
AmxTiles::~AmxTiles() = default;
bool amx_multiply(const AmxOperand&, const std::uint16_t*, int, float*) noexcept { return false; }
bool amx_multiply_add(const AmxOperand&, const std::uint16_t*, int, float*) noexcept { return false; }

#endif

}  // namespace kvring
