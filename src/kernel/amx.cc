#include "kernel/amx.h"

#include <algorithm>
#include <cstring>

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
#define KVRING_AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512f")))

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

// One row of blocks of `a` against kVectors vectors, from zero or added to c.
template <bool kAdd, int kVectors>
KVRING_AMX_TARGET void multiply_row(const BlockMatrix<const std::uint16_t>& a, std::int64_t row,
                                    KeyRange columns, const std::uint16_t* b, float* c) {
  const bool low = a.height(row) < kBlockHeight;
  float* to = c + row * kPanelRows;
  alignas(64) float full[kBlockHeight * kPanelRows];
  if (low) {
    if (kAdd) std::copy_n(to, a.height(row) * kPanelRows, full);
    to = full;
  }
  if (kAdd) {
    _tile_loadd(0, to, kStrideC);
    if (kVectors > 1) _tile_loadd(1, to + 16, kStrideC);
    if (kVectors > 2) _tile_loadd(2, to + 32, kStrideC);
  } else {
    _tile_zero(0);
    if (kVectors > 1) _tile_zero(1);
    if (kVectors > 2) _tile_zero(2);
  }
  for (std::int64_t column = columns.begin; column < columns.end; column += kBlockWidth) {
    const std::uint16_t* block = a.block(row, column);
    alignas(64) std::uint16_t padded[kBlockHeight * kBlockWidth];
    if (low || a.width(column) < kBlockWidth) {
      pad(a, row, column, padded);
      block = padded;
    }
    const std::uint16_t* at = b + column / kBlockWidth * kColumnBlock;
    _tile_loadd(3, block, 64);
    _tile_loadd(4, at, 64);
    _tile_dpbf16ps(0, 3, 4);
    if (kVectors > 1) {
      _tile_loadd(5, at + kVectorBlock, 64);
      _tile_dpbf16ps(1, 3, 5);
    }
    if (kVectors > 2) {
      _tile_loadd(6, at + 2 * kVectorBlock, 64);
      _tile_dpbf16ps(2, 3, 6);
    }
  }
  _tile_stored(0, to, kStrideC);
  if (kVectors > 1) _tile_stored(1, to + 16, kStrideC);
  if (kVectors > 2) _tile_stored(2, to + 32, kStrideC);
  if (!low) return;
  for (std::int64_t i = 0; i < a.height(row); ++i)
    std::copy_n(full + i * kPanelRows, 16 * kVectors, c + (row + i) * kPanelRows);
}

template <bool kAdd>
void multiply(const BlockMatrix<const std::uint16_t>& a, KeyRange rows, KeyRange columns,
              const std::uint16_t* b, int query_rows, float* c) {
  const auto row_of = query_rows > 32   ? multiply_row<kAdd, 3>
                      : query_rows > 16 ? multiply_row<kAdd, 2>
                                        : multiply_row<kAdd, 1>;
  for (std::int64_t row = rows.begin; row < rows.end; row += kBlockHeight) row_of(a, row, columns, b, c);
}

}  // namespace

bool amx_supported() noexcept {
  static const bool kSupported = cpu_has_amx() && system_grants_amx();
  return kSupported;
}

AmxTiles::AmxTiles() noexcept { load_config(); }
AmxTiles::~AmxTiles() { release(); }

void amx_multiply(const BlockMatrix<const std::uint16_t>& a, KeyRange rows, KeyRange columns,
                  const std::uint16_t* b, int query_rows, float* c) noexcept {
  multiply<false>(a, rows, columns, b, query_rows, c);
}
void amx_multiply_add(const BlockMatrix<const std::uint16_t>& a, KeyRange rows, KeyRange columns,
                      const std::uint16_t* b, int query_rows, float* c) noexcept {
  multiply<true>(a, rows, columns, b, query_rows, c);
}

#else

bool amx_supported() noexcept { return false; }
AmxTiles::AmxTiles() noexcept = default;
AmxTiles::~AmxTiles() = default;
void amx_multiply(const BlockMatrix<const std::uint16_t>&, KeyRange, KeyRange, const std::uint16_t*, int,
                  float*) noexcept {}
void amx_multiply_add(const BlockMatrix<const std::uint16_t>&, KeyRange, KeyRange, const std::uint16_t*, int,
                      float*) noexcept {}

#endif

}  // namespace kvring
