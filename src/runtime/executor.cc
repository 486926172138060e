#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>

#include "kernel/panel.h"
#include "kvring/error.h"
#include "runtime/failure.h"

namespace kvring {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_;
};

}  // namespace

Executor::Executor(const ExecutionPlan& plan, Transport& transport, int threads)
    : plan_(plan),
      transport_(transport),
      pool_(threads),
      panels_(plan.problem, plan.layouts.q.shards[static_cast<std::size_t>(plan.rank)]),
      shape_(make_tile_shape(plan.problem)),
      accumulators_(plan.sizes.accumulators) {
  for (int i = 0; i < plan.sizes.slots; ++i) slots_.push_back({AlignedBuffer(plan.sizes.slot), {}});
  const std::int64_t queries =
      kItemPanels * kPanelRows * plan.problem.head_dim * static_cast<std::int64_t>(sizeof(float));
  for (int t = 0; t < threads; ++t) threads_.push_back({AlignedBuffer(queries), TileScratch(shape_)});
}

Executor::~Executor() {
  for (Slot& slot : slots_) {
    try {
      free_slot(slot);
    } catch (const Error&) {
      // The wait itself is what matters here: when it gives up, nobody reads the block any more.
    }
  }
}

void Executor::run(const RankTensors& tensors, const std::function<void(double)>& progress,
                   RankReport& report) {
  tensors_ = &tensors;
  progress_ = &progress;
  report_ = &report;
  std::int64_t attended = 0;
  for (const Step& step : plan_.steps) attended += step.attend;
  work_total_ = static_cast<double>(std::ssize(plan_.laps) * attended);
  work_done_ = 0;
  for (ThreadState& t : threads_) t.full = t.partial = 0;
  try {
    for (std::size_t lap = 0; lap < plan_.laps.size(); ++lap) run_lap(static_cast<std::uint32_t>(lap));
  } catch (...) {
    abandon(current_failure());
    throw;
  }
  ++call_;
  std::int64_t pieces = 0;
  for (const BlockMap& block : plan_.blocks) pieces += std::ssize(block.pieces());
  for (const ThreadState& t : threads_) {
    report.tiles_full += t.full;
    report.tiles_partial += t.partial;
  }
  const std::int64_t units = plan_.problem.batch * plan_.problem.kv_heads;
  report.tiles_skipped = units * panels_.panels() * pieces - report.tiles_full - report.tiles_partial;
  if (progress) progress(1.0);
}

// The ring, as the steps say it: post the receive, post the send, attend, wait for the receive.
void Executor::run_lap(std::uint32_t lap) {
  const Lap& heads = plan_.laps[lap];
  const int own = static_cast<int>(laps_run_++ % slots_.size());
  Slot& own_slot = slots_[static_cast<std::size_t>(own)];
  free_slot(own_slot);
  pack_own(heads, own_slot);
  init_panels(heads);
  Held held{own_slot.block.data(),
            plan_.blocks[static_cast<std::size_t>(plan_.rank)].bytes(heads.kv_end - heads.kv_begin),
            {},
            own};
  for (const Step& step : plan_.steps) {
    std::optional<Transport::Request> arriving;
    if (step.receive_from >= 0) {
      std::span<std::byte> buffer;
      if (!transport_.passes_pointers()) {
        Slot& other = slots_[static_cast<std::size_t>(1 - held.slot)];
        free_slot(other);
        buffer = {other.block.data(), static_cast<std::size_t>(other.block.bytes())};
      }
      arriving = transport_.post_receive(step.receive_from, buffer);
    }
    if (step.send_to >= 0) send(step, lap, held);
    if (step.attend) attend_block(heads, step, held.data);
    let_go(held);
    if (arriving) held = receive(step, lap, *arriving, held);
  }
  finish_rows(heads);
}

void Executor::pack_own(const Lap& lap, Slot& slot) {
  const Stopwatch watch(report_->compute_s);
  const BlockMap& map = plan_.blocks[static_cast<std::size_t>(plan_.rank)];
  const std::int64_t pieces = std::ssize(map.pieces());
  pool_.run((lap.kv_end - lap.kv_begin) * pieces, [&](std::int64_t i, int) {
    pack_piece(map, {tensors_->k, tensors_->v}, lap, i / pieces, i % pieces, slot.block.data());
  });
}

void Executor::init_panels(const Lap& lap) {
  const Stopwatch watch(report_->compute_s);
  pool_.run((lap.kv_end - lap.kv_begin) * panels_.panels(), [&](std::int64_t i, int) {
    panel_init(panel_state(i / panels_.panels(), i % panels_.panels()), shape_.value_dim,
               shape_.accumulation);
  });
}

void Executor::attend_block(const Lap& lap, const Step& step, const std::byte* block) {
  const Stopwatch watch(report_->compute_s);
  const BlockMap& map = plan_.blocks[static_cast<std::size_t>(step.block)];
  const std::int64_t count = (lap.kv_end - lap.kv_begin) * items();
  std::atomic<std::int64_t> finished{0};
  // Late rows see most under a causal mask: longest items first leaves the threads even at the end.
  pool_.run(
      count,
      [&](std::int64_t i, int thread) {
        attend_item(lap, map, block, count - 1 - i, thread);
        ++finished;
      },
      [&] {
        transport_.progress();
        report_progress(work_done_ + static_cast<double>(finished) / static_cast<double>(count));
      });
  work_done_ += 1;
}

// A few panels of one KV unit against all pieces of a block.
void Executor::attend_item(const Lap& lap, const BlockMap& map, const std::byte* block, std::int64_t item,
                           int thread) {
  ThreadState& state = threads_[static_cast<std::size_t>(thread)];
  const std::int64_t unit = item / items();
  const std::int64_t first = item % items() * kItemPanels;
  const int count = static_cast<int>(std::min<std::int64_t>(kItemPanels, panels_.panels() - first));
  const std::int64_t queries = shape_.head_dim * kPanelRows;
  auto* q = reinterpret_cast<float*>(state.queries.data());
  std::array<std::optional<PanelView>, kItemPanels> views;
  for (int p = 0; p < count; ++p) {
    views[static_cast<std::size_t>(p)].emplace(panels_, first + p);
    std::int64_t offsets[kPanelRows];
    const int rows = panels_.panel_rows(first + p);
    for (int i = 0; i < rows; ++i) {
      const QueryPanels::Row row = panels_.row(lap.kv_begin + unit, first + p, i);
      offsets[i] = tensors_->q.offset(panels_.batch(lap.kv_begin + unit), row.token, row.head);
    }
    pack_queries(tensors_->q, offsets, rows, q + p * queries);
  }
  for (std::int64_t piece = 0; piece < std::ssize(map.pieces()); ++piece) {
    RowKeys keys[kItemPanels];
    PanelJob jobs[kItemPanels];
    std::size_t seen = 0;
    for (int p = 0; p < count; ++p) {
      const auto sight = views[static_cast<std::size_t>(p)]->look(
          map.shard(), map.pieces()[static_cast<std::size_t>(piece)], keys[p]);
      if (sight == PanelView::Sight::kEmpty) continue;
      const bool full = sight == PanelView::Sight::kFull;
      (full ? state.full : state.partial) += 1;
      jobs[seen++] = {q + p * queries, full ? nullptr : &keys[p], panel_state(unit, first + p)};
    }
    if (seen > 0) attend_tile(shape_, map.tile(block, unit, piece), {jobs, seen}, state.tile);
  }
}

void Executor::finish_rows(const Lap& lap) {
  const Stopwatch watch(report_->compute_s);
  pool_.run((lap.kv_end - lap.kv_begin) * panels_.panels(), [&](std::int64_t i, int) {
    const std::int64_t unit = lap.kv_begin + i / panels_.panels();
    const std::int64_t panel = i % panels_.panels();
    const std::byte* state = panel_state(i / panels_.panels(), panel);
    const std::int64_t b = panels_.batch(unit);
    for (int r = 0; r < panels_.panel_rows(panel); ++r) {
      const QueryPanels::Row row = panels_.row(unit, panel, r);
      const float sink =
          tensors_->sinks ? tensors_->sinks[row.head] : -std::numeric_limits<float>::infinity();
      const RowOut out{tensors_->out.data, tensors_->out.dtype, tensors_->out.offset(b, row.token, row.head)};
      const float lse = panel_finish_row(state, shape_.value_dim, shape_.accumulation, r, sink, out);
      if (tensors_->lse.data) tensors_->lse.data[tensors_->lse.offset(b, row.head, row.token)] = lse;
    }
  });
}

void Executor::send(const Step& step, std::uint32_t lap, Held& held) {
  MessageHeader header;
  header.problem_digest = plan_.digest;
  header.call = call_;
  header.lap = lap;
  header.step = static_cast<std::uint32_t>(step.step + 1);
  header.owner = step.block;
  const auto bytes = static_cast<std::size_t>(held.bytes);
  const Transport::Request request = transport_.post_send(step.send_to, header, {held.data, bytes});
  slots_[static_cast<std::size_t>(held.slot)].sends.push_back(request);
  report_->bytes_sent += held.bytes;
  report_->hops += 1;
}

void Executor::let_go(Held& held) {
  if (!held.receive) return;
  transport_.release(*held.receive);
  held.receive.reset();
}

Executor::Held Executor::receive(const Step& step, std::uint32_t lap, Transport::Request request,
                                 const Held& held) {
  Transport::Received got;
  {
    const Stopwatch watch(report_->exposed_wait_s);
    got = transport_.wait_receive(request, label("block", step.receive_block, lap, step.step + 1));
  }
  const MessageHeader& h = got.header;
  const std::int64_t expected = plan_.blocks[static_cast<std::size_t>(step.receive_block)].bytes(
      plan_.laps[lap].kv_end - plan_.laps[lap].kv_begin);
  if (h.problem_digest != plan_.digest || h.call != call_ || h.lap != lap ||
      h.step != static_cast<std::uint32_t>(step.step + 1) || h.owner != step.receive_block ||
      std::ssize(got.payload) != expected) {
    throw TransportError(
        fmt::format("rank {} expected block {} of call {}, lap {}, step {} with {} bytes from rank {} and "
                    "got block {} of call {}, "
                    "lap {}, step {} with {} bytes",
                    plan_.rank, step.receive_block, call_, lap, step.step + 1, expected, step.receive_from,
                    h.owner, h.call, h.lap, h.step, got.payload.size()));
  }
  if (transport_.passes_pointers()) return {got.payload.data(), expected, request, held.slot};
  transport_.release(request);
  return {got.payload.data(), expected, {}, 1 - held.slot};
}

// Waits until the slot may be overwritten.
void Executor::free_slot(Slot& slot) {
  if (slot.sends.empty()) return;
  double ignored = 0;
  const Stopwatch watch(report_ ? report_->exposed_wait_s : ignored);
  while (!slot.sends.empty()) {
    transport_.wait_send(slot.sends.back(), "the release of a block");
    slot.sends.pop_back();
  }
}

void Executor::abandon(const std::string& reason) noexcept {
  transport_.fail(reason);
  for (Slot& slot : slots_) {
    for (const Transport::Request send : slot.sends) {
      try {
        transport_.wait_send(send, "the release of a block");
      } catch (...) {
        // As expected after a failure; the wait is what matters.
      }
    }
    slot.sends.clear();
  }
}

std::byte* Executor::panel_state(std::int64_t unit, std::int64_t panel) noexcept {
  return accumulators_.data() +
         (unit * panels_.panels() + panel) * panel_bytes(shape_.value_dim, shape_.accumulation);
}

std::int64_t Executor::items() const noexcept { return (panels_.panels() + kItemPanels - 1) / kItemPanels; }

std::string Executor::label(const char* what, int owner, std::uint32_t lap, int step) const {
  return fmt::format("{} {} (lap {}, step {} of {})", what, owner, lap, step, plan_.steps.size());
}

void Executor::report_progress(double done) {
  if (*progress_) (*progress_)(std::min(1.0, done / std::max(work_total_, 1.0)));
}

}  // namespace kvring
