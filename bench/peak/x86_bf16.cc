// The two bf16 instructions of x86, which the vector library does not know.
#include "peak/peak.h"
#include "peak/rate.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace kvring {
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Leaf cpuid(unsigned leaf, unsigned subleaf) {
  Leaf l;
  if (__get_cpuid_count(leaf, subleaf, &l.eax, &l.ebx, &l.ecx, &l.edx) == 0) return {};
  return l;
}

bool has_bf16_dot() {
  // The first asks whether the system saves the registers, too.
  return __builtin_cpu_supports("avx512f") && (cpuid(7, 1).eax >> 5 & 1) != 0;
}

// AMX needs the processor's bf16 tiles, a system that knows their state, and its leave for this process.
bool amx_granted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr unsigned long kTileData = 18;      // number of the state component
  const unsigned features = cpuid(7, 0).edx;
  if ((features >> 22 & 1) == 0 || (features >> 24 & 1) == 0) return false;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// 24 chains: enough for two ports and six cycles of latency, with room in 32 registers.
__attribute__((target("avx512f,avx512bf16"))) float dot_chains(std::size_t rounds) {
  const __m512 values = _mm512_set1_ps(0.01f);
  const auto a = reinterpret_cast<__m512bh>(_mm512_cvtne2ps_pbh(values, values));
  __m512 c[24];
  for (__m512& x : c) x = values;
  for (std::size_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) c[i] = _mm512_dpbf16_ps(c[i], a, a);
  }
  for (int i = 1; i < 24; ++i) c[0] = _mm512_add_ps(c[0], c[i]);
  return _mm512_cvtss_f32(c[0]);
}

// Layout that the processor prescribes for LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Constants in memory: the compiler does not see that the instructions read all of them, and would leave out
// stores to a local variable.
constexpr TileConfig kConfig;
struct alignas(64) Tile {
  std::array<std::uint16_t, 16 * 32> bf16{};
  constexpr Tile() { bf16.fill(0x3c24); }  // 0.01
};
constexpr Tile kTile;

// Four accumulators from two tiles of either side, as a 32 x 32 product has them, but without its loads.
__attribute__((target("amx-tile,amx-bf16"))) void tile_products(std::size_t rounds) {
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kTile.bf16.data(), 64);
  _tile_loadd(5, kTile.bf16.data(), 64);
  _tile_loadd(6, kTile.bf16.data(), 64);
  _tile_loadd(7, kTile.bf16.data(), 64);
  for (std::size_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

std::optional<double> bf16_dot_peak_gflops() {
  if (!has_bf16_dot()) return {};
  constexpr std::size_t kRounds = 100000;
  constexpr double kFlops = 2.0 * 2 * 16;  // of one instruction: pairs in 16 lanes
  volatile float sink = 0;
  return best_gflops(24 * kFlops * static_cast<double>(kRounds), [&] { sink = dot_chains(kRounds); });
}

std::optional<double> amx_peak_gflops() {
  if (!amx_granted()) return {};
  constexpr std::size_t kRounds = 40000;
  constexpr double kFlops = 2.0 * 16 * 16 * 32;  // of one instruction
  return best_gflops(4 * kFlops * static_cast<double>(kRounds), [&] { tile_products(kRounds); });
}

}  // namespace kvring

#else

namespace kvring {

std::optional<double> bf16_dot_peak_gflops() { return {}; }
std::optional<double> amx_peak_gflops() { return {}; }

}  // namespace kvring
#endif
