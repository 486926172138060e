// The vector kernel against a scalar model of the numerical contract, to the bit, on every instruction set.
#include "kernel/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <random>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernel/panel.h"
#include "kernel/scalar_math.h"
#include "kvring/partial.h"

namespace kvring {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One KV head, one panel of rows, keys cut into tiles; row i sees keys begin[i] <= key < end[i].
struct Case {
  int head_dim = 8, value_dim = 8, keys = 40, tile = 16, rows = kPanelRows;
  DType dtype = DType::kF32;
  Accumulation accumulation = Accumulation::kReproducible;
  float softcap = 0;
  std::optional<double> scale;
  bool wide_queries = false;
  std::vector<float> q, k, v;  // [rows][head_dim], [keys][...]
  std::vector<int> begin, end;

  float& key(int j, int d) { return k[static_cast<std::size_t>(j * head_dim + d)]; }
  float& value(int j, int d) { return v[static_cast<std::size_t>(j * value_dim + d)]; }
  TileShape shape() const {
    Problem p;
    p.head_dim = head_dim;
    p.softcap = softcap;
    p.softmax_scale = scale;
    return {{head_dim, value_dim, tile, dtype, products()}, accumulation, make_logit_transform(p)};
  }
  Products products() const { return products_of(q_dtype(), dtype); }
  // The rows of q are exact in it; with float32 queries bfloat16 keys take the float32 products.
  DType q_dtype() const { return wide_queries ? DType::kF32 : dtype; }
};

float rounded(float x, DType dtype) {
  std::uint16_t bits;
  if (dtype == DType::kF32) return x;
  store_element(&bits, dtype, 0, x);
  return load_element(&bits, dtype, 0);
}

Case random_case(std::mt19937_64& rng) {
  Case c;
  const bool large = rng() % 4 == 0;  // several blocks of 32
  c.head_dim = 1 + static_cast<int>(rng() % (large ? 80 : 20));
  c.value_dim = 1 + static_cast<int>(rng() % (large ? 80 : 20));
  c.keys = 1 + static_cast<int>(rng() % (large ? 200 : 70));
  c.tile = 1 + static_cast<int>(rng() % (large ? 120 : 33));
  c.rows = 1 + static_cast<int>(rng() % (rng() % 3 == 0 ? 6 : kPanelRows));  // often few, as in decode
  c.dtype = static_cast<DType>(rng() % 3);
  c.softcap = rng() % 4 == 0 ? 3.0f : 0.0f;
  c.wide_queries = rng() % 4 == 0;
  const float scale = rng() % 2 ? 1.0f : 4.0f;
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& to, int count, float by) {
    to.resize(static_cast<std::size_t>(count));
    for (float& x : to) x = rounded(by * normal(rng), c.dtype);
  };
  fill(c.q, kPanelRows * c.head_dim, scale);
  fill(c.k, c.keys * c.head_dim, scale);
  fill(c.v, c.keys * c.value_dim, 1.0f);
  for (int i = 0; i < kPanelRows; ++i) {
    int a = static_cast<int>(rng() % (c.keys + 1)), b = static_cast<int>(rng() % (c.keys + 1));
    if (rng() % 3 == 0) a = 0, b = c.keys;
    c.begin.push_back(std::min(a, b));
    c.end.push_back(std::max(a, b));
  }
  return c;
}

std::vector<std::byte> storage(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  }
  return bytes;
}

struct Tiles {
  AlignedBuffer memory;
  std::vector<PackedTile> tiles;
  std::vector<int> first;
};

Tiles pack(const Case& c) {
  const auto k = storage(c.k, c.dtype), v = storage(c.v, c.dtype);
  const ConstTensorView kv = dense_view<const void>(k.data(), c.dtype, {1, c.keys, 1, c.head_dim});
  const ConstTensorView vv = dense_view<const void>(v.data(), c.dtype, {1, c.keys, 1, c.value_dim});
  Tiles t;
  t.memory = AlignedBuffer(static_cast<std::int64_t>(k.size() + v.size()) + 64 * 2 * (c.keys / c.tile + 1));
  std::byte* next = t.memory.data();
  for (int first = 0; first < c.keys; first += c.tile) {
    const std::int64_t keys = std::min(c.tile, c.keys - first);
    PackedTile tile{next, nullptr, keys};
    pack_keys(c.products(), {&kv, 0, 0, first, keys}, next);
    next += round_up(keys * c.head_dim * static_cast<std::int64_t>(dtype_bytes(c.dtype)), 64);
    tile.v = next;
    pack_values(c.products(), {&vv, 0, 0, first, keys}, next);
    next += round_up(keys * c.value_dim * static_cast<std::int64_t>(dtype_bytes(c.dtype)), 64);
    t.tiles.push_back(tile);
    t.first.push_back(first);
  }
  return t;
}

struct State {
  AlignedBuffer bytes;
  explicit State(const Case& c) : bytes(panel_bytes(c.value_dim, c.accumulation)) {
    panel_init(bytes.data(), c.value_dim, c.accumulation);
  }
};

RowKeys row_keys(const Case& c, int first, int keys) {
  RowKeys rows{};
  for (int i = 0; i < c.rows; ++i) {
    rows.begin[i] = std::clamp(c.begin[i] - first, 0, keys);
    rows.end[i] = std::clamp(c.end[i] - first, 0, keys);
  }
  return rows;
}

void attend_in_order(const Case& c, const std::vector<std::size_t>& order, State& state) {
  const Tiles t = pack(c);
  const TileShape shape = c.shape();
  TileScratch scratch(shape);
  AlignedBuffer q(query_bytes(shape.products, c.head_dim));
  std::vector<std::int64_t> offsets;
  for (int i = 0; i < c.rows; ++i) offsets.push_back(i * c.head_dim);
  const auto stored = storage(c.q, c.q_dtype());
  const ConstTensorView qv =
      dense_view<const void>(stored.data(), c.q_dtype(), {1, kPanelRows, 1, c.head_dim});
  const PackedQueries packed = pack_queries(shape.products, qv, offsets.data(), c.rows, q.data());
  for (std::size_t i : order) {
    const RowKeys rows = row_keys(c, t.first[i], static_cast<int>(t.tiles[i].keys));
    const PanelJob job{packed, &rows, state.bytes.data()};
    attend_tile(shape, t.tiles[i], {&job, 1}, scratch);
  }
}

std::vector<std::size_t> ascending(const Case& c) {
  std::vector<std::size_t> order(static_cast<std::size_t>((c.keys + c.tile - 1) / c.tile));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}

bool same_rows(const Case& c, const State& a, const State& b) {
  return std::memcmp(a.bytes.data(), b.bytes.data(),
                     static_cast<std::size_t>(panel_bytes(c.value_dim, c.accumulation))) == 0;
}

struct Output {
  std::vector<float> out;
  float lse;
};

Output finish(const Case& c, const State& s, int row) {
  Output o{std::vector<float>(static_cast<std::size_t>(c.value_dim), -7.0f), 0};
  AlignedBuffer scratch(c.value_dim * kPanelRows * 4);
  std::vector<float> all(static_cast<std::size_t>(c.value_dim * kPanelRows));
  std::vector<FinishRow> rows;
  float lse[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i) rows.push_back({all.data(), i * c.value_dim, -kInf});
  panel_finish(s.bytes.data(), c.value_dim, c.accumulation, DType::kF32, rows, lse,
               reinterpret_cast<float*>(scratch.data()));
  std::copy_n(all.begin() + row * c.value_dim, c.value_dim, o.out.begin());
  o.lse = lse[row];
  return o;
}

// ---- the scalar model -------------------------------------------------------------------------------

float model_exp2(float t) {
  if (t < -126.0f) return 0.0f;
  const float n = std::nearbyint(t);
  const float f = t - n;
  float p = 0x1.5bba16p-10f;
  for (float c : {0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.0f})
    p = std::fma(p, f, c);
  return std::ldexp(p, static_cast<int>(n));
}

float model_tanh(float x) {
  const float a = std::fabs(x);
  if (a >= 0.4f) {
    const float e = model_exp2(a * -2.8853900817779268f);
    return std::copysign((1.0f - e) / (1.0f + e), x);
  }
  const float x2 = x * x;
  float s = 21844.0f / 6081075.0f;
  for (float c : {-1382.0f / 155925.0f, 62.0f / 2835.0f, -17.0f / 315.0f, 2.0f / 15.0f, -1.0f / 3.0f})
    s = std::fma(s, x2, c);
  return std::fma(s * x2, x, x);
}

// The sum of a(t) * b(t) as the contract has it.
template <class A, class B>
float model_product(Products products, int begin, int end, const A& a, const B& b) {
  float sum = 0;
  if (products == Products::kFloat32) {
    for (int t = begin; t < end; ++t) sum = std::fma(a(t), b(t), sum);
    return sum;
  }
  std::map<int, std::array<float, 2>> blocks;
  for (int t = begin; t < end; ++t) {
    float& chain = blocks[t / 32][static_cast<std::size_t>(t % 2)];
    chain = std::fma(a(t), b(t), chain);
  }
  for (const auto& [block, chains] : blocks) sum += chains[0] + chains[1];
  return sum;
}

// What the contract says of one row: every tile a function of its own, tiles summed by RowAccumulator.
RowAccumulator model_row(const Case& c, int row) {
  RowAccumulator sum(c.value_dim);
  const TileShape shape = c.shape();
  const bool bf16 = shape.products == Products::kBF16;
  for (int first = 0; first < c.keys; first += c.tile) {
    const int begin = std::max(c.begin[row], first), end = std::min({c.end[row], first + c.tile, c.keys});
    if (begin >= end) continue;
    std::vector<float> s;
    float top = -kInf;
    for (int j = begin; j < end; ++j) {
      const float dot = model_product(
          shape.products, 0, c.head_dim,
          [&](int d) { return c.k[static_cast<std::size_t>(j * c.head_dim + d)]; },
          [&](int d) { return c.q[static_cast<std::size_t>(row * c.head_dim + d)]; });
      const float x = dot * shape.logits.scale;
      s.push_back(c.softcap != 0 ? model_tanh(x) * shape.logits.cap : x);
      top = std::max(top, s.back());
    }
    const float m = std::ceil(top);
    const float factor = model_exp2(top - m);
    float l = 0;
    std::vector<float> weights;
    for (float logit : s) {
      const float t = logit - top;
      const float p = bf16 && t < -55.5f ? 0.0f : model_exp2(t);
      l += p;
      const std::uint32_t ties_away = (std::bit_cast<std::uint32_t>(p) + 0x8000u) & 0xffff0000u;
      weights.push_back(bf16 ? std::bit_cast<float>(ties_away) : p);
    }
    std::vector<float> x;
    for (int d = 0; d < c.value_dim; ++d) {
      const float sum_of_values = model_product(
          shape.products, begin - first, end - first,
          [&](int t) { return c.v[static_cast<std::size_t>((first + t) * c.value_dim + d)]; },
          [&](int t) { return weights[static_cast<std::size_t>(first + t - begin)]; });
      x.push_back(sum_of_values * factor);
    }
    sum.add_tile(m, 0, l * factor, x);
  }
  return sum;
}

// Bits of raw state of one lane, in RowAccumulator's terms.
bool lane_equals(const Case& c, const State& s, int row, const RowAccumulator& expected) {
  const auto* reference = reinterpret_cast<const float*>(s.bytes.data());
  const auto* sums = reinterpret_cast<const double*>(reference + kPanelRows);
  if (std::bit_cast<std::uint32_t>(reference[row]) != std::bit_cast<std::uint32_t>(expected.reference()))
    return false;
  for (int e = 0; e <= c.value_dim; ++e) {
    const double* hi = sums + 2 * e * kPanelRows + row;
    const BinnedSum& want = expected.sums()[static_cast<std::size_t>(e)];
    if (std::bit_cast<std::uint64_t>(hi[0]) != std::bit_cast<std::uint64_t>(want.hi)) return false;
    if (std::bit_cast<std::uint64_t>(hi[kPanelRows]) != std::bit_cast<std::uint64_t>(want.lo)) return false;
  }
  return true;
}

class EveryIsa : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_isa(GetParam()); }
  void TearDown() override { force_kernel_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Kernel, EveryIsa, testing::ValuesIn(kernel_isas()),
                         [](const auto& i) { return i.param; });

TEST_P(EveryIsa, RawStateIsTheContractsToTheBit) {
  std::mt19937_64 rng(11);
  for (int trial = 0; trial < 150; ++trial) {
    const Case c = random_case(rng);
    State state(c);
    attend_in_order(c, ascending(c), state);
    for (int row = 0; row < c.rows; ++row) {
      ASSERT_TRUE(lane_equals(c, state, row, model_row(c, row))) << "trial " << trial << " row " << row;
    }
  }
}

// Logits that differ by whole numbers and halves: ties of the nearest whole number, and the very weights
// where weights end.
TEST_P(EveryIsa, WeightsAtTiesAndAtTheLowestPower) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Case c;
    c.dtype = dtype;
    c.head_dim = 1;
    c.value_dim = 2;
    c.keys = 512;
    c.tile = 512;
    c.scale = std::numbers::ln2_v<float>;  // so that logits are q k in log2 units, or next to it
    c.rows = 1;
    c.q.assign(kPanelRows, 0.5f);
    for (int j = 0; j < c.keys; ++j) {
      c.k.push_back(
          rounded(static_cast<float>(-j), dtype));  // 0, -1/2, -1, ... -255.5 where bfloat16 has them
      c.v.push_back(rounded(0x1p100f * static_cast<float>(j + 1), dtype));
      c.v.push_back(1.0f);
    }
    c.begin.assign(kPanelRows, 0);
    c.end.assign(kPanelRows, c.keys);
    // Alone with the first key, every other one shows its weight.
    for (int last = 1; last < c.keys; ++last) {
      Case pair = c;
      pair.keys = 2;
      pair.k = {c.k[0], c.k[static_cast<std::size_t>(last)]};
      pair.v = {0, 1, 0x1p120f, 1};
      pair.end.assign(kPanelRows, 2);
      State state(pair);
      attend_in_order(pair, {0}, state);
      ASSERT_TRUE(lane_equals(pair, state, 0, model_row(pair, 0))) << "logit " << -0.5 * last;
    }
    State state(c);
    attend_in_order(c, {0}, state);
    EXPECT_TRUE(lane_equals(c, state, 0, model_row(c, 0)));
  }
}

// a unit that takes subnormal numbers for 0 among those that do not
TEST_P(EveryIsa, ProductsBelowFloat32sNormalRangeKeepTheirBits) {
  std::mt19937_64 rng(18);
  for (int trial = 0; trial < 40; ++trial) {
    Case c = random_case(rng);
    c.dtype = DType::kBF16;
    c.wide_queries = false;
    c.softcap = 0;
    for (float& x : c.q) x = rounded(x * 0x1p-70f, c.dtype);
    for (float& x : c.k) x = rounded(x * (trial % 2 ? 0x1p-65f : 0x1p40f), c.dtype);
    for (float& x : c.v) x = rounded(x * (rng() % 2 ? 0x1p-125f : 0x1p-130f), c.dtype);
    State state(c);
    attend_in_order(c, ascending(c), state);
    for (int row = 0; row < c.rows; ++row) {
      ASSERT_TRUE(lane_equals(c, state, row, model_row(c, row))) << "trial " << trial << " row " << row;
    }
  }
}

TEST_P(EveryIsa, TilesInAnyOrderSplitOverAnyRanksGiveTheSameRawState) {
  std::mt19937_64 rng(12);
  for (int trial = 0; trial < 60; ++trial) {
    Case c = random_case(rng);
    c.tile = 1 + static_cast<int>(rng() % 8);
    for (int j = 0; j < c.keys; ++j) {  // logits that ramp and jump, dims of V far apart
      const float ramp = std::ldexp(1.0f, static_cast<int>(rng() % 8) - 4);
      for (int d = 0; d < c.head_dim; ++d) c.key(j, d) *= ramp;
      for (int d = 0; d < c.value_dim; ++d) {
        c.value(j, d) = rounded(c.value(j, d) * (d % 3 == 0   ? 0x1p-10f
                                                 : d % 3 == 1 ? 0x1p10f
                                                              : 1.0f),
                                c.dtype);
      }
    }
    State expected(c);
    attend_in_order(c, ascending(c), expected);
    std::vector<std::size_t> order = ascending(c);
    std::shuffle(order.begin(), order.end(), rng);
    const std::size_t cut = rng() % (order.size() + 1);
    State a(c), b(c);
    attend_in_order(c, {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(cut)}, a);
    attend_in_order(c, {order.begin() + static_cast<std::ptrdiff_t>(cut), order.end()}, b);
    panel_merge(a.bytes.data(), b.bytes.data(), c.value_dim, c.accumulation);
    ASSERT_TRUE(same_rows(c, a, expected)) << "trial " << trial;
  }
}

// a few rows, for which keys and dims lie in the lanes, with values that call for repair
TEST_P(EveryIsa, FewRowsHaveTheBitsThatTheyHaveInAFullPanel) {
  std::mt19937_64 rng(19);
  for (int trial = 0; trial < 120; ++trial) {
    Case c = random_case(rng);
    c.rows = kPanelRows;
    for (float special : {kInf, -kInf, std::nanf(""), 3e38f, -3e38f}) {
      if (rng() % 3 == 0) c.value(static_cast<int>(rng() % c.keys), 0) = rounded(special, c.dtype);
      if (rng() % 6 == 0) c.key(static_cast<int>(rng() % c.keys), 0) = rounded(special, c.dtype);
    }
    State full(c);
    attend_in_order(c, ascending(c), full);
    Case few = c;
    few.rows = 1 + static_cast<int>(rng() % 10);
    State state(few);
    attend_in_order(few, ascending(few), state);
    for (int row = 0; row < few.rows; ++row) {
      const Output a = finish(c, full, row), b = finish(few, state, row);
      ASSERT_EQ(std::memcmp(a.out.data(), b.out.data(), a.out.size() * 4), 0) << trial << " row " << row;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(a.lse), std::bit_cast<std::uint32_t>(b.lse));
    }
  }
}

// hidden V or K of 1e10, 1e30, NaN or Inf in a row's own tile changes not one bit of that row
TEST_P(EveryIsa, HiddenKeysAndValuesChangeNotOneBit) {
  std::mt19937_64 rng(13);
  for (float poison : {1e10f, 1e30f, -1e30f, kInf, -kInf, std::nanf("")}) {
    for (int trial = 0; trial < 20; ++trial) {
      Case c = random_case(rng);
      State clean(c);
      attend_in_order(c, ascending(c), clean);
      const int hidden = static_cast<int>(rng() % c.keys);
      for (int d = 0; d < c.head_dim; ++d) c.key(hidden, d) = poison;
      for (int d = 0; d < c.value_dim; ++d) c.value(hidden, d) = poison;
      State poisoned(c);
      attend_in_order(c, ascending(c), poisoned);
      for (int row = 0; row < c.rows; ++row) {
        if (c.begin[row] <= hidden && hidden < c.end[row]) continue;
        const Output a = finish(c, clean, row), b = finish(c, poisoned, row);
        ASSERT_EQ(std::memcmp(a.out.data(), b.out.data(), a.out.size() * 4), 0) << poison << " row " << row;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(a.lse), std::bit_cast<std::uint32_t>(b.lse));
      }
    }
  }
}

// NaN or Inf in a visible key gives what plain attention gives, in any order of tiles, and stays in its dim.
TEST_P(EveryIsa, VisibleInfinitiesAndNanComeOutAsInPlainAttention) {
  std::mt19937_64 rng(14);
  Case c = random_case(rng);
  c.dtype = DType::kF32;
  c.keys = 24;
  c.tile = 8;
  c.head_dim = 4;
  c.value_dim = 5;
  c.softcap = 0;
  c.rows = 3;
  c.q.assign(kPanelRows * 4, 0.5f);
  c.k.assign(24 * 4, 0.25f);
  c.v.assign(24 * 5, 1.0f);
  c.begin = {0, 0, 16};
  c.end = {24, 8, 24};
  for (int d = 0; d < 4; ++d) c.key(9, d) = -400.0f;  // its weight underflows, but is not zero
  c.value(9, 0) = kInf;
  c.value(2, 1) = -kInf;
  c.value(3, 2) = std::nanf("");
  c.value(2, 3) = kInf;
  c.value(20, 3) = -kInf;
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    State state(c);
    attend_in_order(c, order, state);
    const Output all = finish(c, state, 0), first = finish(c, state, 1), last = finish(c, state, 2);
    EXPECT_EQ(all.out[0], kInf);
    EXPECT_EQ(all.out[1], -kInf);
    EXPECT_TRUE(std::isnan(all.out[2]));
    EXPECT_TRUE(std::isnan(all.out[3]));
    EXPECT_EQ(all.out[4], 1.0f);
    EXPECT_EQ(first.out[0], 1.0f);
    EXPECT_EQ(first.out[3], kInf);
    EXPECT_EQ(last.out[2], 1.0f);
    EXPECT_EQ(last.out[3], -kInf);
    EXPECT_TRUE(std::isfinite(all.lse));
  } while (std::next_permutation(order.begin(), order.end()));

  const auto whole_row = [&](float key, bool nan) {
    Case bad = c;
    bad.v.assign(24 * 5, 1.0f);
    for (int d = 0; d < 4; ++d) bad.key(4, d) = key;
    State state(bad);
    attend_in_order(bad, ascending(bad), state);
    for (int row : {0, 1}) {
      const Output o = finish(bad, state, row);
      EXPECT_EQ(std::isnan(o.lse), nan);
      for (float x : o.out) EXPECT_TRUE(nan ? std::isnan(x) : x == 1.0f) << x;
    }
    EXPECT_EQ(finish(bad, state, 2).out[0], 1.0f);
  };
  whole_row(std::nanf(""), true);
  whole_row(kInf, true);
  whole_row(-kInf, false);  // weight zero, value finite
}

TEST_P(EveryIsa, SumsBeyondFloat32AreScaledNotInfinite) {
  Case c;
  c.keys = 40;
  c.tile = 40;
  c.head_dim = 2;
  c.value_dim = 3;
  c.q.assign(kPanelRows * 2, 0.0f);
  c.k.assign(80, 1.0f);
  c.v.assign(120, 3e38f);
  for (int j = 0; j < 40; ++j) c.value(j, 1) = 0x1p-140f, c.value(j, 2) = j % 2 ? 3e38f : -3e38f;
  c.begin.assign(kPanelRows, 0);
  c.end.assign(kPanelRows, 40);
  State state(c);
  attend_in_order(c, ascending(c), state);
  const Output o = finish(c, state, 5);
  EXPECT_FLOAT_EQ(o.out[0], 3e38f);
  EXPECT_NEAR(o.out[1], 0.0f, 0x1p-140f);  // weights 2^-16 smaller push a subnormal value out of float32
  EXPECT_NEAR(o.out[2] / 3e38f, 0.0f, 1e-6f);
}

// A tile whose sum overflows float32 meets one whose does not: the scaled weights must count in full.
TEST_P(EveryIsa, ScaledTilesKeepTheirWeightBesideOthers) {
  Case c;
  c.keys = 32;
  c.tile = 16;
  c.head_dim = c.value_dim = 1;
  c.q.assign(kPanelRows, 0.0f);
  c.k.assign(32, 1.0f);
  c.v.assign(32, 3e38f);
  std::fill(c.v.begin() + 16, c.v.end(), -1e38f);
  c.begin.assign(kPanelRows, 0);
  c.end.assign(kPanelRows, 32);
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1}, {1, 0}}) {
    State state(c);
    attend_in_order(c, order, state);
    EXPECT_FLOAT_EQ(finish(c, state, 3).out[0], 1e38f);
    EXPECT_FLOAT_EQ(finish(c, state, 3).lse, std::log(32.0f));
  }
}

// 0 * Inf: a key of logit -inf has no weight, and plain attention makes NaN of an infinite value there.
TEST_P(EveryIsa, InfiniteValueWithoutWeightIsNan) {
  Case c;
  c.keys = 4;
  c.tile = 4;
  c.head_dim = c.value_dim = 1;
  c.q.assign(kPanelRows, 1.0f);
  c.k = {1.0f, -kInf, 1.0f, -400.0f};
  c.v = {1.0f, kInf, 1.0f, 1.0f};
  c.begin.assign(kPanelRows, 0);
  c.end.assign(kPanelRows, 4);
  State none(c);
  attend_in_order(c, ascending(c), none);
  EXPECT_TRUE(std::isnan(finish(c, none, 0).out[0]));
  EXPECT_TRUE(std::isfinite(finish(c, none, 0).lse));
  std::swap(c.v[1], c.v[3]);  // a weight that only underflows is a weight
  State some(c);
  attend_in_order(c, ascending(c), some);
  EXPECT_EQ(finish(c, some, 0).out[0], kInf);
}

TEST_P(EveryIsa, LogitsOfTenMillionKeepTheirOrder) {
  Case c;
  c.keys = 32;
  c.tile = 8;
  c.head_dim = 1;
  c.value_dim = 1;
  c.q.assign(kPanelRows, 1.0f);
  c.begin.assign(kPanelRows, 0);
  c.end.assign(kPanelRows, 32);
  for (float size : {1e7f, 1e12f, 1e30f}) {
    c.k.clear();
    c.v.clear();
    for (int j = 0; j < 32; ++j) {
      c.k.push_back(size * (1.0f + 0.001f * static_cast<float>(j)));
      c.v.push_back(static_cast<float>(j));
    }
    State state(c);
    attend_in_order(c, ascending(c), state);
    EXPECT_EQ(finish(c, state, 0).out[0], 31.0f) << size;  // 1e4 above the next: all the weight
    EXPECT_NEAR(finish(c, state, 0).lse / c.k[31], 1.0, 1e-6);
  }
}

TEST_P(EveryIsa, OnlineAgreesWithReproducibleToRounding) {
  std::mt19937_64 rng(15);
  for (int trial = 0; trial < 30; ++trial) {
    Case c = random_case(rng);
    State exact(c);
    attend_in_order(c, ascending(c), exact);
    c.accumulation = Accumulation::kOnline;
    State online(c);
    attend_in_order(c, ascending(c), online);
    for (int row = 0; row < c.rows; ++row) {
      Case r = c;
      r.accumulation = Accumulation::kReproducible;
      const Output a = finish(r, exact, row), b = finish(c, online, row);
      // At most 71 tiles, each one addition and two exact scalings; |v| below 6.
      for (std::size_t d = 0; d < a.out.size(); ++d) EXPECT_NEAR(a.out[d], b.out[d], 71 * 6 * 0x1p-23);
      if (std::isfinite(a.lse)) {
        EXPECT_NEAR(a.lse, b.lse, 71 * 0x1p-23 + 1e-6 * std::fabs(a.lse));
      }
      if (!std::isfinite(a.lse)) {
        EXPECT_EQ(a.lse, b.lse);
      }
    }
  }
}

// a host that set FTZ or another rounding mode
TEST(FloatEnvironment, HostSettingsChangeNoBitAndAreRestored) {
  std::mt19937_64 rng(16);
  Case c = random_case(rng);
  c.dtype = DType::kF32;
  for (float& x : c.v) x *= 0x1p-130f;
  State expected(c);
  attend_in_order(c, ascending(c), expected);
#if defined(__SSE__)
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);  // flush to zero, denormals are zero
  State bare(c);
  attend_in_order(c, ascending(c), bare);
  EXPECT_FALSE(same_rows(c, bare, expected)) << "the setting does not show here, so the test shows nothing";
  {
    const FloatEnvironment environment;
    State guarded(c);
    attend_in_order(c, ascending(c), guarded);
    EXPECT_TRUE(same_rows(c, guarded, expected));
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(saved);
#endif
  std::fesetround(FE_DOWNWARD);
  {
    const FloatEnvironment environment;
    State guarded(c);
    attend_in_order(c, ascending(c), guarded);
    EXPECT_TRUE(same_rows(c, guarded, expected));
  }
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace kvring
