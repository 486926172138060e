#include "runtime/block_attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "kernel/panel.h"

namespace kvring {
namespace {

std::size_t state_index(const QuerySet& set, std::int64_t unit, std::int64_t first_panel, std::int64_t part,
                        std::int64_t panel, int thread) noexcept {
  const std::int64_t index = set.cut.at_once ? thread * kItemPanels + (panel - first_panel)
                                             : (part * set.most_units + unit) * set.cut.panels + panel;
  return static_cast<std::size_t>(index);
}

std::int64_t all_pieces(std::span<const MetBlock> blocks) {
  std::int64_t pieces = 0;
  for (const MetBlock& block : blocks) pieces += std::ssize(block.map->pieces());
  return pieces;
}

}  // namespace

TileShape make_tile_shape(const Problem& p) {
  return {tile_dims(p), p.accumulation, make_logit_transform(p)};
}

BlockAttention::BlockAttention(const Problem& problem, int threads)
    : shape_(make_tile_shape(problem)), pool_(threads) {
  for (int t = 0; t < threads; ++t)
    threads_.push_back({AlignedBuffer(item_query_bytes(problem)), TileScratch(shape_), {}});
}

void BlockAttention::pack(const Lap& lap, const BlockMap& map, const PackSource& source, std::byte* block) {
  const std::int64_t pieces = std::ssize(map.pieces());
  pool_.run(lap.units() * pieces,
            [&](std::int64_t i, int) { pack_piece(map, source, lap, i / pieces, i % pieces, block); });
}

void BlockAttention::copy_units(const Lap& lap, const std::byte* from, std::int64_t from_unit, std::byte* to,
                                std::int64_t to_unit) {
  pool_.run(lap.units(), [&](std::int64_t i, int) {
    if (to_unit > 0) std::memcpy(to + i * to_unit, from + i * from_unit, static_cast<std::size_t>(to_unit));
  });
}

void BlockAttention::pack_queries(const Lap& lap, const QueryPanels& panels, const RankTensors& tensors,
                                  const Problem& problem, std::byte* parcel) {
  const ConstTensorView to = parcel_queries(problem, parcel, panels.tokens(), lap.units());
  const UnitRows rows{0, problem.kv_heads};
  const std::size_t element = dtype_bytes(problem.q_dtype);
  const auto* from = static_cast<const std::byte*>(tensors.q.data);
  pool_.run(lap.units(), [&](std::int64_t i, int) {
    const std::int64_t unit = lap.kv_begin + i, head = rows.first_head(unit, panels.group());
    for (std::int64_t token = 0; token < panels.tokens(); ++token) {
      for (std::int64_t member = 0; member < panels.group(); ++member) {
        const auto at = static_cast<std::size_t>(tensors.q.offset(rows.batch(unit), token, head + member));
        std::memcpy(parcel + static_cast<std::size_t>(to.offset(i, token, member)) * element,
                    from + at * element, static_cast<std::size_t>(problem.head_dim) * element);
      }
    }
  });
}

void BlockAttention::unpack_rows(const Lap& units, const RowsParcel& parcel, const RankTensors& tensors,
                                 const Problem& problem) {
  const UnitRows rows{0, problem.kv_heads};
  const std::int64_t tokens = parcel.out.shape[1], group = parcel.out.shape[2];
  const std::size_t element = dtype_bytes(problem.out_dtype);
  auto* to = static_cast<std::byte*>(tensors.out.data);
  const auto* from = static_cast<const std::byte*>(parcel.out.data);
  pool_.run(units.units(), [&](std::int64_t i, int) {
    const std::int64_t unit = units.kv_begin + i, head = rows.first_head(unit, group), b = rows.batch(unit);
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t member = 0; member < group; ++member) {
        std::memcpy(to + static_cast<std::size_t>(tensors.out.offset(b, token, head + member)) * element,
                    from + static_cast<std::size_t>(parcel.out.offset(i, token, member)) * element,
                    static_cast<std::size_t>(problem.value_dim) * element);
        if (tensors.lse.data)
          tensors.lse.data[tensors.lse.offset(b, head + member, token)] =
              parcel.lse.data[parcel.lse.offset(i, member, token)];
      }
    }
  });
}

Operation::Tiles BlockAttention::attend(QuerySet& set, std::span<const MetBlock> blocks,
                                        const std::function<void(double)>& between) {
  for (ThreadState& t : threads_) t.tiles = {};
  const WorkCut& cut = set.cut;
  const std::int64_t count = set.units.units() * cut.items * cut.parts;
  std::atomic<std::int64_t> finished{0};
  // Late rows see most under a causal mask: longest items first leaves the threads even at the end.
  pool_.run(
      count,
      [&](std::int64_t i, int thread) {
        const std::int64_t item = count - 1 - i;
        const std::int64_t row = item / cut.parts;
        attend_job(set, blocks, {row / cut.items, row % cut.items * kItemPanels, item % cut.parts}, thread);
        ++finished;
      },
      [&] {
        if (between) between(static_cast<double>(finished) / static_cast<double>(count));
      });
  set.finished = cut.at_once;
  Operation::Tiles met;
  for (const ThreadState& t : threads_) {
    met.full += t.tiles.full;
    met.partial += t.tiles.partial;
  }
  met.skipped = set.units.units() * cut.panels * all_pieces(blocks) - met.full - met.partial;
  return met;
}

void BlockAttention::attend_job(QuerySet& set, std::span<const MetBlock> blocks, const Job& job,
                                int thread_index) {
  ThreadState& thread = threads_[static_cast<std::size_t>(thread_index)];
  const QueryPanels& panels = *set.panels;
  const int count = static_cast<int>(std::min<std::int64_t>(kItemPanels, set.cut.panels - job.first_panel));
  const std::int64_t unit = set.units.kv_begin + job.unit;
  const std::int64_t head = set.rows.first_head(unit, panels.group()), b = set.rows.batch(unit);
  const std::int64_t packed_bytes = query_bytes(shape_.products, shape_.head_dim);
  PackedQueries q[kItemPanels];
  std::array<std::optional<PanelView>, kItemPanels> views;
  for (int p = 0; p < count; ++p) {
    const std::int64_t panel = job.first_panel + p;
    views[static_cast<std::size_t>(p)].emplace(panels, panel);
    std::int64_t offsets[kPanelRows];
    const int rows = panels.panel_rows(panel);
    for (int i = 0; i < rows; ++i) {
      const QueryPanels::Row row = panels.row(panel, i);
      offsets[i] = set.q.offset(b, row.token, head + row.member);
    }
    q[p] =
        kvring::pack_queries(shape_.products, set.q, offsets, rows, thread.queries.data() + p * packed_bytes);
  }
  const std::int64_t pieces = all_pieces(blocks);
  const std::int64_t begin = job.part * pieces / set.cut.parts, end = (job.part + 1) * pieces / set.cut.parts;
  std::int64_t first = 0;  // piece of the block, counted over all blocks
  for (const MetBlock& block : blocks) {
    const std::int64_t own = std::ssize(block.map->pieces());
    for (std::int64_t piece = std::max<std::int64_t>(0, begin - first); piece < std::min(own, end - first);
         ++piece) {
      RowKeys keys[kItemPanels];
      PanelJob jobs[kItemPanels];
      std::size_t seen = 0;
      for (int p = 0; p < count; ++p) {
        const auto sight = views[static_cast<std::size_t>(p)]->look(
            block.map->shard(), block.map->pieces()[static_cast<std::size_t>(piece)], keys[p]);
        if (sight == PanelView::Sight::kEmpty) continue;
        const bool full = sight == PanelView::Sight::kFull;
        (full ? thread.tiles.full : thread.tiles.partial) += 1;
        jobs[seen++] = {q[p], full ? nullptr : &keys[p], state(set, job, job.first_panel + p, thread_index)};
      }
      if (seen > 0)
        attend_tile(shape_, block.map->tile(block.data, block.unit_bytes, job.unit, piece), {jobs, seen},
                    thread.tile);
    }
    first += own;
  }
  if (!set.cut.at_once) return;
  for (int p = 0; p < count; ++p) finish_panel(set, job, job.first_panel + p, thread_index);
}

void BlockAttention::merge(QuerySet& set, const std::byte* partials) {
  pool_.run(set.units.units() * set.cut.panels, [&](std::int64_t i, int thread) {
    const std::int64_t panel = i % set.cut.panels;
    panel_merge(state(set, {i / set.cut.panels, panel, 0}, panel, thread),
                partials + i * panel_bytes(shape_.value_dim, shape_.accumulation), shape_.value_dim,
                shape_.accumulation);
  });
}

void BlockAttention::gather_partials(QuerySet& set) {
  pool_.run(set.units.units() * set.cut.panels, [&](std::int64_t i, int thread) {
    const std::int64_t panel = i % set.cut.panels;
    fold_parts(set, {i / set.cut.panels, panel, 0}, panel, thread);
  });
}

void BlockAttention::finish(QuerySet& set) {
  if (set.finished) return;
  pool_.run(set.units.units() * set.cut.panels, [&](std::int64_t i, int thread) {
    const std::int64_t panel = i % set.cut.panels;
    finish_panel(set, {i / set.cut.panels, panel / kItemPanels * kItemPanels, 0}, panel, thread);
  });
  set.finished = true;
}

std::byte* BlockAttention::fold_parts(QuerySet& set, const Job& job, std::int64_t panel, int thread) {
  std::byte* sums = state(set, job, panel, thread);
  for (std::int64_t part = 1; part < set.cut.parts; ++part) {
    panel_merge(sums, state(set, {job.unit, job.first_panel, part}, panel, thread), shape_.value_dim,
                shape_.accumulation);
  }
  return sums;
}

void BlockAttention::finish_panel(QuerySet& set, const Job& job, std::int64_t panel, int thread) {
  const QueryPanels& panels = *set.panels;
  const std::byte* sums = fold_parts(set, job, panel, thread);
  // For the next item.
  if (set.cut.at_once) set.used[state_index(set, job.unit, job.first_panel, 0, panel, thread)] = 0;
  const std::int64_t unit = set.units.kv_begin + job.unit;
  const std::int64_t b = set.rows.batch(unit), head = set.rows.first_head(unit, panels.group());
  const int count = panels.panel_rows(panel);
  std::array<FinishRow, kPanelRows> rows;
  float lse[kPanelRows];
  for (int r = 0; r < count; ++r) {
    const QueryPanels::Row row = panels.row(panel, r);
    rows[static_cast<std::size_t>(r)] = {set.out.data, set.out.offset(b, row.token, head + row.member),
                                         set.sink(unit, row.member)};
  }
  panel_finish(sums, shape_.value_dim, shape_.accumulation, set.out.dtype,
               {rows.data(), static_cast<std::size_t>(count)}, lse,
               threads_[static_cast<std::size_t>(thread)].tile.partial);
  for (int r = 0; set.lse.data && r < count; ++r) {
    const QueryPanels::Row row = panels.row(panel, r);
    set.lse.data[set.lse.offset(b, head + row.member, row.token)] = lse[r];
  }
}

std::byte* BlockAttention::state(QuerySet& set, const Job& job, std::int64_t panel, int thread) {
  const std::size_t index = state_index(set, job.unit, job.first_panel, job.part, panel, thread);
  std::byte* sums =
      set.sums + static_cast<std::int64_t>(index) * panel_bytes(shape_.value_dim, shape_.accumulation);
  if (!set.used[index]) panel_init(sums, shape_.value_dim, shape_.accumulation);
  set.used[index] = 1;
  return sums;
}

}  // namespace kvring
