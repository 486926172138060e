#include "runtime/block_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>

#include "kernel/panel.h"

namespace kvring {

TileShape make_tile_shape(const Problem& p) {
  return {tile_dims(p), p.accumulation, make_logit_transform(p)};
}

BlockAttention::BlockAttention(const Work& work)
    : panels_(work.problem, work.queries),
      shape_(make_tile_shape(work.problem)),
      units_(work.units),
      cut_(cut_work(work)),
      pool_(work.threads),
      accumulators_(accumulator_bytes(work)),
      used_(static_cast<std::size_t>(panel_states(work))) {
  for (int t = 0; t < work.threads; ++t)
    threads_.push_back({AlignedBuffer(item_query_bytes(work.problem)), TileScratch(shape_), {}});
}

void BlockAttention::pack(const Lap& lap, const BlockMap& map, const PackSource& source, std::byte* block) {
  const std::int64_t pieces = std::ssize(map.pieces());
  pool_.run((lap.kv_end - lap.kv_begin) * pieces,
            [&](std::int64_t i, int) { pack_piece(map, source, lap, i / pieces, i % pieces, block); });
}

void BlockAttention::begin(const Lap& lap) {
  lap_ = lap;
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  finished_ = false;
}

Operation::Tiles BlockAttention::attend(const RankTensors& tensors, const BlockMap& map,
                                        const std::byte* block, const std::function<void(double)>& between) {
  for (ThreadState& t : threads_) t.tiles = {};
  const std::int64_t count = (lap_.kv_end - lap_.kv_begin) * cut_.items * cut_.parts;
  std::atomic<std::int64_t> finished{0};
  // Late rows see most under a causal mask: longest items first leaves the threads even at the end.
  pool_.run(
      count,
      [&](std::int64_t i, int thread) {
        const std::int64_t item = count - 1 - i;
        const std::int64_t row = item / cut_.parts;
        attend_job(tensors, map, block, {row / cut_.items, row % cut_.items * kItemPanels, item % cut_.parts},
                   thread);
        ++finished;
      },
      [&] {
        if (between) between(static_cast<double>(finished) / static_cast<double>(count));
      });
  finished_ = cut_.at_once;
  Operation::Tiles met;
  for (const ThreadState& t : threads_) {
    met.full += t.tiles.full;
    met.partial += t.tiles.partial;
  }
  const std::int64_t all = (lap_.kv_end - lap_.kv_begin) * cut_.panels * std::ssize(map.pieces());
  met.skipped = all - met.full - met.partial;
  return met;
}

void BlockAttention::attend_job(const RankTensors& tensors, const BlockMap& map, const std::byte* block,
                                const Job& job, int thread_index) {
  ThreadState& thread = threads_[static_cast<std::size_t>(thread_index)];
  const int count = static_cast<int>(std::min<std::int64_t>(kItemPanels, cut_.panels - job.first_panel));
  const std::int64_t unit = lap_.kv_begin + job.unit;
  const std::int64_t packed_bytes = query_bytes(shape_.products, shape_.head_dim);
  PackedQueries q[kItemPanels];
  std::array<std::optional<PanelView>, kItemPanels> views;
  for (int p = 0; p < count; ++p) {
    const std::int64_t panel = job.first_panel + p;
    views[static_cast<std::size_t>(p)].emplace(panels_, panel);
    std::int64_t offsets[kPanelRows];
    const int rows = panels_.panel_rows(panel);
    for (int i = 0; i < rows; ++i) {
      const QueryPanels::Row row = panels_.row(unit, panel, i);
      offsets[i] = tensors.q.offset(panels_.batch(unit), row.token, row.head);
    }
    q[p] = pack_queries(shape_.products, tensors.q, offsets, rows, thread.queries.data() + p * packed_bytes);
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
      jobs[seen++] = {q[p], full ? nullptr : &keys[p], state(job, job.first_panel + p, thread_index)};
    }
    if (seen > 0) attend_tile(shape_, map.tile(block, job.unit, piece), {jobs, seen}, thread.tile);
  }
  if (!cut_.at_once) return;
  for (int p = 0; p < count; ++p) finish_panel(tensors, job, job.first_panel + p, thread_index);
}

void BlockAttention::finish(const RankTensors& tensors) {
  if (finished_) return;
  pool_.run((lap_.kv_end - lap_.kv_begin) * cut_.panels, [&](std::int64_t i, int thread) {
    const std::int64_t panel = i % cut_.panels;
    finish_panel(tensors, {i / cut_.panels, panel / kItemPanels * kItemPanels, 0}, panel, thread);
  });
}

void BlockAttention::finish_panel(const RankTensors& tensors, const Job& job, std::int64_t panel,
                                  int thread) {
  std::byte* sums = state(job, panel, thread);
  for (std::int64_t part = 1; part < cut_.parts; ++part) {
    panel_merge(sums, state({job.unit, job.first_panel, part}, panel, thread), shape_.value_dim,
                shape_.accumulation);
  }
  if (cut_.at_once) used_[state_index(job, panel, thread)] = 0;  // for the next item
  const std::int64_t unit = lap_.kv_begin + job.unit;
  const std::int64_t b = panels_.batch(unit);
  const int count = panels_.panel_rows(panel);
  std::array<FinishRow, kPanelRows> rows;
  float lse[kPanelRows];
  for (int r = 0; r < count; ++r) {
    const QueryPanels::Row row = panels_.row(unit, panel, r);
    const float sink = tensors.sinks ? tensors.sinks[row.head] : -std::numeric_limits<float>::infinity();
    rows[static_cast<std::size_t>(r)] = {tensors.out.data, tensors.out.offset(b, row.token, row.head), sink};
  }
  panel_finish(sums, shape_.value_dim, shape_.accumulation, tensors.out.dtype,
               {rows.data(), static_cast<std::size_t>(count)}, lse,
               threads_[static_cast<std::size_t>(thread)].tile.partial);
  for (int r = 0; tensors.lse.data && r < count; ++r) {
    const QueryPanels::Row row = panels_.row(unit, panel, r);
    tensors.lse.data[tensors.lse.offset(b, row.head, row.token)] = lse[r];
  }
}

std::size_t BlockAttention::state_index(const Job& job, std::int64_t panel, int thread) const noexcept {
  const std::int64_t index = cut_.at_once ? thread * kItemPanels + (panel - job.first_panel)
                                          : (job.part * units_ + job.unit) * cut_.panels + panel;
  return static_cast<std::size_t>(index);
}

std::byte* BlockAttention::state(const Job& job, std::int64_t panel, int thread) {
  const std::size_t index = state_index(job, panel, thread);
  std::byte* sums = accumulators_.data() +
                    static_cast<std::int64_t>(index) * panel_bytes(shape_.value_dim, shape_.accumulation);
  if (!used_[index]) panel_init(sums, shape_.value_dim, shape_.accumulation);
  used_[index] = 1;
  return sums;
}

}  // namespace kvring
