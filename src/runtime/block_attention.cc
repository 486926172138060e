#include "runtime/block_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>

#include "kernel/panel.h"

namespace kvring {

TileShape make_tile_shape(const Problem& p) {
  const std::int64_t longest = std::min(p.tile, std::max<std::int64_t>(p.kv_len, 1));
  return {p.head_dim,
          p.value_dim,
          longest,
          p.kv_dtype,
          products_of(p.q_dtype, p.kv_dtype),
          p.accumulation,
          make_logit_transform(p)};
}

WorkCut cut_work(const Problem& problem, const Shard& queries, std::int64_t units, int threads) {
  WorkCut cut;
  cut.panels = QueryPanels(problem, queries).panels();
  cut.items = (cut.panels + kItemPanels - 1) / kItemPanels;
  const std::int64_t jobs = units * cut.items;
  // Two jobs a thread even out what an uneven machine or mask makes of them.
  if (jobs > 0 && jobs < 2 * threads) cut.parts = std::min<std::int64_t>(threads, 2 * threads / jobs);
  return cut;
}

BlockAttention::BlockAttention(const Problem& problem, const Shard& queries, std::int64_t units, int threads)
    : panels_(problem, queries),
      shape_(make_tile_shape(problem)),
      units_(units),
      cut_(cut_work(problem, queries, units, threads)),
      pool_(threads),
      accumulators_(accumulator_bytes(problem, queries, units, threads)),
      used_(static_cast<std::size_t>(cut_.parts * units * cut_.panels)) {
  const std::int64_t query_bytes = scratch_bytes(problem) - TileScratch::bytes(shape_);
  for (int t = 0; t < threads; ++t) threads_.push_back({AlignedBuffer(query_bytes), TileScratch(shape_), {}});
}

std::int64_t BlockAttention::accumulator_bytes(const Problem& problem, const Shard& queries,
                                               std::int64_t units, int threads) {
  const WorkCut cut = cut_work(problem, queries, units, threads);
  return cut.parts * units * cut.panels * panel_bytes(problem.value_dim, problem.accumulation);
}

std::int64_t BlockAttention::scratch_bytes(const Problem& problem) {
  const TileShape shape = make_tile_shape(problem);
  return TileScratch::bytes(shape) + kItemPanels * query_bytes(shape.products, shape.head_dim);
}

void BlockAttention::pack(const Lap& lap, const BlockMap& map, const PackSource& source, std::byte* block) {
  const std::int64_t pieces = std::ssize(map.pieces());
  pool_.run((lap.kv_end - lap.kv_begin) * pieces,
            [&](std::int64_t i, int) { pack_piece(map, source, lap, i / pieces, i % pieces, block); });
}

void BlockAttention::begin(const Lap& lap) {
  lap_ = lap;
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
}

void BlockAttention::attend(const ConstTensorView& q, const BlockMap& map, const std::byte* block,
                            const std::function<void(double)>& between) {
  const std::int64_t count = (lap_.kv_end - lap_.kv_begin) * cut_.items * cut_.parts;
  std::atomic<std::int64_t> finished{0};
  // Late rows see most under a causal mask: longest items first leaves the threads even at the end.
  pool_.run(
      count,
      [&](std::int64_t i, int thread) {
        const std::int64_t item = count - 1 - i;
        const std::int64_t row = item / cut_.parts;
        attend_job(q, map, block, {row / cut_.items, row % cut_.items * kItemPanels, item % cut_.parts},
                   threads_[static_cast<std::size_t>(thread)]);
        ++finished;
      },
      [&] {
        if (between) between(static_cast<double>(finished) / static_cast<double>(count));
      });
}

void BlockAttention::attend_job(const ConstTensorView& q_tensor, const BlockMap& map, const std::byte* block,
                                const Job& job, ThreadState& thread) {
  const int count = static_cast<int>(std::min<std::int64_t>(kItemPanels, cut_.panels - job.first_panel));
  const std::int64_t unit = lap_.kv_begin + job.unit;
  const std::int64_t panel_bytes = query_bytes(shape_.products, shape_.head_dim);
  PackedQueries q[kItemPanels];
  std::array<std::optional<PanelView>, kItemPanels> views;
  for (int p = 0; p < count; ++p) {
    const std::int64_t panel = job.first_panel + p;
    views[static_cast<std::size_t>(p)].emplace(panels_, panel);
    std::int64_t offsets[kPanelRows];
    const int rows = panels_.panel_rows(panel);
    for (int i = 0; i < rows; ++i) {
      const QueryPanels::Row row = panels_.row(unit, panel, i);
      offsets[i] = q_tensor.offset(panels_.batch(unit), row.token, row.head);
    }
    q[p] = pack_queries(shape_.products, q_tensor, offsets, rows, thread.queries.data() + p * panel_bytes);
  }
  const std::int64_t pieces = std::ssize(map.pieces());
  const std::int64_t end = (job.part + 1) * pieces / cut_.parts;
  for (std::int64_t piece = job.part * pieces / cut_.parts; piece < end; ++piece) {
    RowKeys keys[kItemPanels];
    PanelJob jobs[kItemPanels];
    std::size_t seen = 0;
    for (int p = 0; p < count; ++p) {
      const auto sight = views[static_cast<std::size_t>(p)]->look(
          map.shard(), map.pieces()[static_cast<std::size_t>(piece)], keys[p]);
      if (sight == PanelView::Sight::kEmpty) continue;
      const bool full = sight == PanelView::Sight::kFull;
      (full ? thread.tiles.full : thread.tiles.partial) += 1;
      jobs[seen++] = {q[p], full ? nullptr : &keys[p], state(job.part, job.unit, job.first_panel + p)};
    }
    if (seen > 0) attend_tile(shape_, map.tile(block, job.unit, piece), {jobs, seen}, thread.tile);
  }
}

void BlockAttention::finish(const RankTensors& tensors) {
  pool_.run((lap_.kv_end - lap_.kv_begin) * cut_.panels, [&](std::int64_t i, int thread) {
    finish_panel(tensors, i / cut_.panels, i % cut_.panels, threads_[static_cast<std::size_t>(thread)]);
  });
}

void BlockAttention::finish_panel(const RankTensors& tensors, std::int64_t unit, std::int64_t panel,
                                  ThreadState& thread) {
  std::byte* sums = state(0, unit, panel);
  for (std::int64_t part = 1; part < cut_.parts; ++part) {
    panel_merge(sums, state(part, unit, panel), shape_.value_dim, shape_.accumulation);
  }
  const std::int64_t b = panels_.batch(lap_.kv_begin + unit);
  const int count = panels_.panel_rows(panel);
  std::array<FinishRow, kPanelRows> rows;
  float lse[kPanelRows];
  for (int r = 0; r < count; ++r) {
    const QueryPanels::Row row = panels_.row(lap_.kv_begin + unit, panel, r);
    const float sink = tensors.sinks ? tensors.sinks[row.head] : -std::numeric_limits<float>::infinity();
    rows[static_cast<std::size_t>(r)] = {tensors.out.data, tensors.out.offset(b, row.token, row.head), sink};
  }
  panel_finish(sums, shape_.value_dim, shape_.accumulation, tensors.out.dtype,
               {rows.data(), static_cast<std::size_t>(count)}, lse, thread.tile.partial);
  for (int r = 0; tensors.lse.data && r < count; ++r) {
    const QueryPanels::Row row = panels_.row(lap_.kv_begin + unit, panel, r);
    tensors.lse.data[tensors.lse.offset(b, row.head, row.token)] = lse[r];
  }
}

BlockAttention::Tiles BlockAttention::tiles() const noexcept {
  Tiles sum;
  for (const ThreadState& t : threads_) {
    sum.full += t.tiles.full;
    sum.partial += t.tiles.partial;
  }
  return sum;
}

void BlockAttention::reset_tiles() noexcept {
  for (ThreadState& t : threads_) t.tiles = {};
}

std::byte* BlockAttention::state(std::int64_t part, std::int64_t unit, std::int64_t panel) {
  const std::int64_t index = (part * units_ + unit) * cut_.panels + panel;
  std::byte* sums = accumulators_.data() + index * panel_bytes(shape_.value_dim, shape_.accumulation);
  std::uint8_t& used = used_[static_cast<std::size_t>(index)];
  if (!used) panel_init(sums, shape_.value_dim, shape_.accumulation);
  used = 1;
  return sums;
}

}  // namespace kvring
