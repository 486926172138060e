#include "schedule/work_cut.h"

#include <algorithm>

#include "problem/kernel_sizes.h"

namespace kvring {

std::int64_t panels_of(const Problem& problem, const Shard& queries) {
  const std::int64_t rows = queries.tokens() * (problem.q_heads / problem.kv_heads);
  return (rows + kPanelRows - 1) / kPanelRows;
}

WorkCut cut_work(const Work& work) {
  WorkCut cut;
  cut.panels = panels_of(work.problem, work.queries);
  cut.items = (cut.panels + kItemPanels - 1) / kItemPanels;
  const std::int64_t jobs = work.units * cut.items;
  // Two jobs a thread even out what an uneven machine or mask makes of them.
  const std::int64_t wanted = std::int64_t{2} * work.threads;
  if (jobs > 0 && jobs < wanted) cut.parts = std::min<std::int64_t>(work.threads, wanted / jobs);
  cut.at_once = work.meetings == 1 && cut.parts == 1;
  return cut;
}

std::int64_t panel_states(const Work& work) {
  const WorkCut cut = cut_work(work);
  return cut.at_once ? std::int64_t{work.threads} * kItemPanels : cut.parts * work.units * cut.panels;
}

std::int64_t accumulator_bytes(const Work& work) {
  return panel_states(work) * panel_bytes(work.problem.value_dim, work.problem.accumulation);
}

std::int64_t item_query_bytes(const Problem& p) {
  return kItemPanels * query_bytes(products_of(p.q_dtype, p.kv_dtype), p.head_dim);
}

std::int64_t scratch_bytes(const Problem& problem) {
  return ScratchSizes(tile_dims(problem)).bytes() + item_query_bytes(problem);
}

std::int64_t unit_block_bytes(const Problem& p, const Shard& shard) {
  return shard.tokens() * (p.head_dim + p.value_dim) * static_cast<std::int64_t>(dtype_bytes(p.kv_dtype));
}

}  // namespace kvring
