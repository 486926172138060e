// The bfloat16 products by VDPBF16PS and by fused multiply-adds: do the bits agree, and which is faster? On a
// processor with AVX-512 BF16:
//   g++ -std=c++20 -O3 docs/experiments/vdpbf16ps.cc -o build/vdpbf16ps && build/vdpbf16ps
//
// Both take a block of 32 terms in the contract's order (docs/numerics.md), even and odd terms a chain each,
// for 4 keys and 48 queries with 24 accumulators.
#pragma GCC target("avx512f,avx512bw,avx512bf16")
#pragma GCC optimize("fp-contract=off")
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int kTerms = 32, kQueries = 48, kKeys = 4;

// One term an element.
struct Fma {
  using Element = float;
  static constexpr int kElements = kTerms;
  static __m512 add(__m512 sum, float x, const float* y) {
    return _mm512_fmadd_ps(_mm512_set1_ps(x), _mm512_loadu_ps(y), sum);
  }
  // Element i of a row whose terms are `stride` apart.
  static float pack(const std::uint16_t* row, int stride, int i) {
    return std::bit_cast<float>(std::uint32_t{row[i * stride]} << 16);
  }
};

// Two terms of a chain an element. The instruction adds the product of the upper halves first.
template <bool kSwapped>
struct Pairs {
  using Element = std::uint32_t;
  static constexpr int kElements = kTerms / 2;
  static __m512 add(__m512 sum, std::uint32_t x, const std::uint32_t* y) {
    const __m512i a = _mm512_set1_epi32(static_cast<int>(x)), b = _mm512_loadu_si512(y);
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static std::uint32_t pack(const std::uint16_t* row, int stride, int i) {
    const int t = i / 2 * 4 + i % 2;
    const std::uint32_t first = row[t * stride], second = row[(t + 2) * stride];
    return kSwapped ? first << 16 | second : second << 16 | first;
  }
};

template <class P>
struct Packed {
  std::vector<typename P::Element> a, b;

  Packed(const std::vector<std::uint16_t>& keys, const std::vector<std::uint16_t>& queries) {
    for (int key = 0; key < kKeys; ++key) {
      for (int i = 0; i < P::kElements; ++i) a.push_back(P::pack(&keys[key * kTerms], 1, i));
    }
    for (int i = 0; i < P::kElements; ++i) {
      for (int lane = 0; lane < kQueries; ++lane) b.push_back(P::pack(&queries[lane], kQueries, i));
    }
  }
};

template <class P>
[[gnu::noinline]] void add_block(const typename P::Element* a, const typename P::Element* b, float* c) {
  __m512 sum[2][kKeys][3];
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i) sum[i / 12][i / 3 % 4][i % 3] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (int e = 0; e < P::kElements; e += 2, b += 2 * kQueries) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) {
      const int odd = i / 12, key = i / 3 % 4, v = i % 3;
      sum[odd][key][v] =
          P::add(sum[odd][key][v], a[key * P::kElements + e + odd], b + odd * kQueries + v * 16);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) {
    float* to = c + i * 16;
    const __m512 both = _mm512_add_ps(sum[0][i / 3][i % 3], sum[1][i / 3][i % 3]);
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), both));
  }
}

template <class P>
std::vector<float> product(const std::vector<std::uint16_t>& keys,
                           const std::vector<std::uint16_t>& queries) {
  const Packed<P> packed(keys, queries);
  std::vector<float> c(kKeys * kQueries);
  add_block<P>(packed.a.data(), packed.b.data(), c.data());
  return c;
}

// Sums whose bits differ, all NaN being one, for magnitudes from 2^low to below 2^(high + 1), an eighth of
// them 0.
template <class P>
void compare(const char* name, int low, int high) {
  std::mt19937 random(1);
  std::vector<std::uint16_t> keys(kKeys * kTerms), queries(kQueries * kTerms);
  const auto draw = [&] {
    const unsigned exponent = 127 + low + random() % (high - low + 1);
    const unsigned bits = random() % 8 ? exponent << 7 | random() % 128 : 0;
    return static_cast<std::uint16_t>(bits | (random() & 0x8000));
  };
  int differ = 0;
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    std::generate(keys.begin(), keys.end(), draw);
    std::generate(queries.begin(), queries.end(), draw);
    const auto x = product<Fma>(keys, queries), y = product<P>(keys, queries);
    for (std::size_t i = 0; i < x.size(); ++i)
      differ +=
          std::bit_cast<int>(x[i]) != std::bit_cast<int>(y[i]) && !(std::isnan(x[i]) && std::isnan(y[i]));
  }
  std::printf("%-28s 2^%-3d to 2^%-3d %6d of %d sums differ\n", name, low, high, differ,
              kRounds * kKeys * kQueries);
}

template <class P>
double gflops() {
  const std::vector<std::uint16_t> ones(kQueries * kTerms, 0x3f80);
  const Packed<P> packed(ones, ones);
  std::vector<float> c(kKeys * kQueries);
  double best = 1e9;
  constexpr int kBlocks = 2000;
  for (int attempt = 0; attempt < 300; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBlocks; ++i) add_block<P>(packed.a.data(), packed.b.data(), c.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return 2e-9 * kBlocks * kKeys * kQueries * kTerms / best;
}

}  // namespace

int main() {
  compare<Pairs<false>>("pairs t, t+2", -2, 2);
  compare<Pairs<true>>("pairs t+2, t", -2, 2);
  compare<Pairs<true>>("pairs t+2, t", -56, 56);
  compare<Pairs<true>>("pairs t+2, t", -56, -50);
  compare<Pairs<true>>("pairs t+2, t", 50, 70);
  compare<Pairs<true>>("pairs t+2, t", -66, -57);
  const double fma = gflops<Fma>(), pairs = gflops<Pairs<true>>();
  std::printf("fused multiply-adds %.1f GFLOP/s, VDPBF16PS %.1f, ratio %.2f\n", fma, pairs, pairs / fma);
}
