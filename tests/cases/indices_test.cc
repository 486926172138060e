// "index arithmetic wraps at 2^31": offsets for 46341 squared scores and for tensors of 2^31 elements and
// more, checked without allocating: strides stretch tensors of a few tokens over memory of which a few pages
// exist.
#include <sys/mman.h>

#include "kvring/partial.h"
#include "mask/mask.h"
#include "runtime/block.h"
#include "runtime/query_panels.h"
#include "schedule/memory.h"
#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

constexpr std::int64_t kTokens = std::int64_t{1} << 40;

// Address space without memory behind it until it is touched.
class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {}
  ~SparseMemory() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  bool mapped() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// A view of that shape whose tokens lie 2^31 elements apart, and whose heads 2^29.
class SparseTensor {
 public:
  explicit SparseTensor(const ConstTensorView& like)
      : memory_((like.shape[1] << 31) * static_cast<std::int64_t>(dtype_bytes(like.dtype))),
        view_{memory_.data(), like.dtype, like.shape, {0, std::int64_t{1} << 31, std::int64_t{1} << 29, 1}} {}
  bool mapped() const { return memory_.mapped(); }
  const TensorView& view() const { return view_; }

 private:
  SparseMemory memory_;
  TensorView view_;
};

TEST(Faults, OffsetsOfTensorsBeyondTwoToThe31ElementsWrap) {
  Rng rng(111);
  Problem p = sequence(5, 2, true);
  p.q_heads = 2;
  p.kv_dtype = DType::kBF16;
  const Inputs in = random_inputs(rng, p);
  const Result dense = run_inproc(p, ring_of(2), in);
  const SparseTensor q(in.q.view()), k(in.k.view()), v(in.v.view()), out(dense.out.view());
  const SparseMemory lse_memory((p.q_len << 31) * 4);
  if (!q.mapped() || !k.mapped() || !v.mapped() || !out.mapped() || !lse_memory.mapped())
    GTEST_SKIP() << "this system lends no address space of 40 GiB";
  const Shard all({{0, p.q_len}});
  for (auto& [from, to] : {std::pair(&in.q, &q), {&in.k, &k}, {&in.v, &v}})
    shard(from->view(), all, to->view());
  const LseView lse{
      static_cast<float*>(lse_memory.data()), {1, 2, 5}, {0, std::int64_t{1} << 29, std::int64_t{1} << 31}};
  const auto expect_dense = [&] {
    OwnedTensor got(p.out_dtype, out.view().shape);
    shard(as_const(out.view()), all, got.view());
    EXPECT_TRUE(got == dense.out);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t s = 0; s < 5; ++s) EXPECT_EQ(lse.data[lse.offset(0, h, s)], lse_at(dense, 0, h, s));
  };
  attend(p, ring_of(2), as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(), lse);
  expect_dense();
  // A ring of one reads and writes the caller's own tensors, without copies between.
  const OwnedTensor poison(p.out_dtype, out.view().shape);
  unshard(poison.view(), all, out.view());
  expect_no_failure(on_ranks(1, [&](Transport& end) {
    Ring ring(p, make_layouts({}, p, 1), one_thread(), end);
    ring.attend(as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(), lse);
  }));
  expect_dense();
}

// 46341 squared is the first square beyond 2^31. The window keeps the work small.
TEST(Faults, ScoresOf46341SquaredWrap) {
  Problem p = sequence(46341, 64, true);
  p.q_heads = p.kv_heads = 1;
  p.window_left = 100;
  Rng rng(112);
  const Inputs in = random_inputs(rng, p);
  expect_reference_rows(p, in, run_inproc(p, ring_of(3), in), telling_rows(rng, p.q_len, 30));
}

// A terabyte of tokens, cut and planned without a tensor.
TEST(Faults, PlansOfTwoToThe40TokensWrap) {
  Problem p = sequence(kTokens, 1 << 15, true);
  p.window_left = 100;
  for (int ranks : {2, 3, 8}) {
    const LayoutSpec by_tokens{LayoutKind::kZigzag, 0, Cut::kTokens};
    const Layouts layouts{make_layout(by_tokens, kTokens, {}, p.tile, ranks),
                          make_layout(by_tokens, kTokens, {}, p.tile, ranks)};
    std::int64_t tokens = 0;
    for (const Shard& s : layouts.q.shards) {
      tokens += s.tokens();
      EXPECT_EQ(s.position(s.tokens() - 1), s.ranges().back().end - 1);
    }
    EXPECT_EQ(tokens, kTokens);
    // The last rank of a zigzag owns the middle, and needs its neighbour's.
    const std::vector<Step> steps = schedule_steps(ScheduleKind::kRing, p, layouts, ranks - 1);
    EXPECT_EQ(steps[0].attends, (std::vector<Attend>{{ranks - 1, ranks - 1}}));
    EXPECT_EQ(steps[1].attends, (std::vector<Attend>{{ranks - 1, ranks - 2}}));
  }
  const Mask mask(p);
  EXPECT_EQ(mask.visible(kTokens - 1), (Range{kTokens - 101, kTokens}));
}

TEST(Faults, TileGridOfTwoToThe36TokensWraps) {
  constexpr std::int64_t kLong = std::int64_t{1} << 36, kTile = 1 << 15;
  const std::vector<std::int64_t> grid = tile_grid(kLong, {}, kTile);
  ASSERT_EQ(std::ssize(grid), kLong / kTile + 1);
  for (std::size_t i = 0; i < grid.size(); ++i) ASSERT_EQ(grid[i], static_cast<std::int64_t>(i) * kTile);
}

TEST(Faults, BlockOffsetsOfTwoToThe40TokensWrap) {
  const Problem p = sequence(kTokens, 512);
  const Shard all({{0, kTokens}});
  const BlockMap map(p, all, {{kTokens - 512, 512, 0, 1}});
  const std::int64_t row = (p.head_dim + p.value_dim) * 4;
  EXPECT_EQ(map.bytes(2), 2 * kTokens * row);
  // Offsets from a base that nobody reads.
  const auto* base =
      reinterpret_cast<const std::byte*>(std::uintptr_t{4096});  // NOLINT(performance-no-int-to-ptr)
  const PackedTile tile = map.tile(base, map.bytes(1), 1, 0);
  EXPECT_EQ(tile.k - base, kTokens * row + (kTokens - 512) * row);
  EXPECT_EQ(tile.v - base, kTokens * row + (kTokens - 512) * row + 512 * p.head_dim * 4);
  EXPECT_EQ(rows_before(all, map.pieces()[0], kTokens - 3), 509);
}

TEST(Faults, QueryPanelsOfTwoToThe40TokensWrap) {
  Problem p = sequence(kTokens, 512, true);
  p.q_heads = 6;  // 3 to a KV head
  const Shard all({{0, kTokens}});
  const QueryPanels panels(p, all);
  EXPECT_EQ(panels.rows(), 3 * kTokens);
  EXPECT_EQ(panels.panels(), 3 * kTokens / kPanelRows);
  const std::int64_t last = panels.panels() - 1;
  const QueryPanels::Row row = panels.row(last, kPanelRows - 1);
  EXPECT_EQ(row.token, kTokens - 1);
  EXPECT_EQ(row.member, 2);
  RowKeys keys;
  const PanelView view(panels, last);
  EXPECT_EQ(view.look(all, {0, 512, 0, 1}, keys), PanelView::Sight::kFull);
  EXPECT_EQ(view.look(all, {kTokens - 512, 512, 0, 1}, keys), PanelView::Sight::kPartial);
  EXPECT_EQ(keys.begin[0], 0);
  EXPECT_EQ(keys.end[0], 512 - kPanelRows / 3 + 1);
  EXPECT_EQ(keys.end[kPanelRows - 1], 512);
}

TEST(Faults, MemoryLedgerOfTwoToThe40TokensWraps) {
  const Problem p = sequence(kTokens, 512);
  const LayoutSpec by_tokens{LayoutKind::kContiguous, 0, Cut::kTokens};
  const Layout layout = make_layout(by_tokens, kTokens, {}, p.tile, 8);
  const Layouts layouts{layout, layout};
  const Ledger ledger = memory_ledger({p, layouts, 1, false}, 3, p.kv_heads);
  const auto bytes = [&](std::string_view name) {
    for (const auto& [entry, size] : ledger)
      if (entry == name) return size;
    return std::int64_t{-1};
  };
  const std::int64_t own = kTokens / 8;
  EXPECT_EQ(bytes("q"), own * p.q_heads * p.head_dim * 4);
  EXPECT_EQ(bytes("block_1"), own * p.kv_heads * (p.head_dim + p.value_dim) * 4);
  // Two float64 per value and for the sum of weights, and one float32 reference, per row.
  const std::int64_t panels = (own * p.q_heads / p.kv_heads + kPanelRows - 1) / kPanelRows;
  EXPECT_EQ(bytes("accumulators"), p.kv_heads * panels * kPanelRows * ((p.value_dim + 1) * 16 + 4));
}

}  // namespace
}  // namespace kvring::test
