#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>

#include "kvring/error.h"
#include "runtime/failure.h"

namespace kvring {
namespace {

double seconds(Operation::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Executor::Executor(const ExecutionPlan& plan, Transport& transport, int threads)
    : plan_(plan),
      transport_(transport),
      recorder_(transport),
      attention_({plan.problem, plan.layouts.q.shards[static_cast<std::size_t>(plan.rank)], plan.sizes.units,
                  static_cast<int>(plan.layouts.q.shards.size()), threads}) {
  for (int i = 0; i < plan.sizes.slots; ++i) slots_.push_back({AlignedBuffer(plan.sizes.slot), {}});
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
  try {
    for (std::size_t lap = 0; lap < plan_.laps.size(); ++lap) run_lap(static_cast<std::uint32_t>(lap));
  } catch (...) {
    abandon(current_failure());
    throw;
  }
  ++call_;
  report.exposed_wait_s = report.exposed_late_s + report.exposed_transfer_s + report.exposed_send_s;
  std::int64_t pieces = 0;
  for (const BlockMap& block : plan_.blocks) pieces += std::ssize(block.pieces());
  const std::int64_t units = plan_.problem.batch * plan_.problem.kv_heads;
  report.tiles_skipped = units * attention_.panels() * pieces - report.tiles_full - report.tiles_partial;
  if (progress) progress(1.0);
}

// The ring, as the steps say it: post the receive, and already that what it brings goes on, then attend, then
// wait for the receive.
void Executor::run_lap(std::uint32_t lap) {
  const int own = static_cast<int>(laps_run_++ % slots_.size());
  Slot& own_slot = slots_[static_cast<std::size_t>(own)];
  free_slot(own_slot);
  begin_lap(lap, own_slot);
  Held held{own_slot.block.data(), own, {}};
  for (const Step& step : plan_.steps) {
    std::optional<Arriving> arriving;
    if (step.receive_from >= 0) arriving = post_receive(step, lap, held);
    // Any other block went on as it arrived.
    if (step.send_to >= 0 && step.block == plan_.rank) send(step, lap, held);
    if (arriving) forward(step, lap, *arriving);
    if (step.attend) attend_block(step, lap, held.data);
    let_go(held);
    if (arriving) held = receive(step, lap, *arriving);
  }
  const auto last = static_cast<std::int32_t>(plan_.steps.size()) - 1;
  timed({.what = Operation::What::kFinish, .block = plan_.rank, .lap = lap, .step = last}, report_->compute_s,
        [&] { attention_.finish(*tensors_); });
}

// The slot that the block at hand does not lie in takes the next one, as soon as what it held is gone.
Executor::Arriving Executor::post_receive(const Step& step, std::uint32_t lap, const Held& held) {
  Arriving arriving{.slot = held.slot};
  std::span<std::byte> buffer;
  if (!transport_.passes_pointers()) {
    arriving.slot = 1 - held.slot;
    Slot& slot = slots_[static_cast<std::size_t>(arriving.slot)];
    free_slot(slot);
    buffer = {slot.block.data(), static_cast<std::size_t>(slot.block.bytes())};
  }
  Operation operation{.what = Operation::What::kReceive,
                      .block = step.receive_block,
                      .call = call_,
                      .lap = lap,
                      .step = step.step + 1,
                      .peer = step.receive_from,
                      .bytes = block_bytes(step.receive_block, lap)};
  arriving.posted = Clock::now();
  arriving.request = transport_.post_receive(step.receive_from, buffer);
  operation.request = arriving.request;
  operation.posted = Clock::now();
  arriving.record = recorder_.begin(operation);
  return arriving;
}

// What arrives for a step that passes it on goes on without this rank's doing. Sends of one link are posted
// in the order of their steps: after this step's own.
void Executor::forward(const Step& step, std::uint32_t lap, Arriving& arriving) {
  const auto next = static_cast<std::size_t>(step.step + 1);
  if (next == plan_.steps.size() || plan_.steps[next].send_to < 0) return;
  const int to = plan_.steps[next].send_to;
  arriving.forward = track_send(transport_.post_forward(arriving.request, to),
                                {.what = Operation::What::kSend,
                                 .block = step.receive_block,
                                 .call = call_,
                                 .lap = lap,
                                 .step = step.step + 2,
                                 .peer = to,
                                 .bytes = block_bytes(step.receive_block, lap)},
                                arriving.slot);
}

template <typename Work>
void Executor::timed(Operation operation, double& total, Work work) {
  operation.call = call_;
  operation.posted = Clock::now();
  const Recorder::Id record = recorder_.begin(operation);
  if constexpr (std::is_void_v<std::invoke_result_t<Work>>)
    work();
  else
    operation.tiles = work();
  const Clock::time_point done = Clock::now();
  recorder_.end(record, {.done = done, .tiles = operation.tiles});
  total += seconds(done - operation.posted);
}

void Executor::note(Operation operation, Clock::time_point from, Clock::time_point to, double& total) {
  if (to <= from) return;
  operation.posted = from;
  operation.done = to;
  recorder_.begin(operation);
  total += seconds(to - from);
}

void Executor::begin_lap(std::uint32_t lap, Slot& slot) {
  timed({.what = Operation::What::kPack, .block = plan_.rank, .lap = lap}, report_->compute_s, [&] {
    const BlockMap& map = plan_.blocks[static_cast<std::size_t>(plan_.rank)];
    attention_.pack(plan_.laps[lap], map, {tensors_->k, tensors_->v}, slot.block.data());
    attention_.begin(plan_.laps[lap]);
  });
}

void Executor::attend_block(const Step& step, std::uint32_t lap, const std::byte* block) {
  const Operation operation{
      .what = Operation::What::kAttend, .block = step.block, .lap = lap, .step = step.step};
  timed(operation, report_->compute_s, [&] {
    const Operation::Tiles tiles = attention_.attend(
        *tensors_, plan_.blocks[static_cast<std::size_t>(step.block)], block, [this](double share) {
          transport_.progress();
          report_progress(work_done_ + share);
        });
    report_->tiles_full += tiles.full;
    report_->tiles_partial += tiles.partial;
    return tiles;
  });
  work_done_ += 1;
}

std::int64_t Executor::block_bytes(int owner, std::uint32_t lap) const {
  const Lap& heads = plan_.laps[lap];
  return plan_.blocks[static_cast<std::size_t>(owner)].bytes(heads.kv_end - heads.kv_begin);
}

// This rank's own block.
void Executor::send(const Step& step, std::uint32_t lap, const Held& held) {
  MessageHeader header;
  header.problem_digest = plan_.digest;
  header.call = call_;
  header.lap = lap;
  header.step = static_cast<std::uint32_t>(step.step + 1);
  header.owner = step.block;
  Operation operation{.what = Operation::What::kSend,
                      .block = step.block,
                      .call = call_,
                      .lap = lap,
                      .step = step.step + 1,
                      .peer = step.send_to,
                      .bytes = block_bytes(step.block, lap)};
  const std::span<const std::byte> payload(held.data, static_cast<std::size_t>(operation.bytes));
  track_send(transport_.post_send(step.send_to, header, payload), operation, held.slot);
}

Recorder::Id Executor::track_send(Transport::Request request, Operation operation, int slot) {
  operation.request = request;
  operation.posted = Clock::now();
  const Recorder::Id record = recorder_.begin(operation);
  slots_[static_cast<std::size_t>(slot)].sends.push_back({operation, record});
  report_->bytes_sent += operation.bytes;
  report_->hops += 1;
  return record;
}

void Executor::let_go(Held& held) {
  if (!held.receive) return;
  transport_.release(*held.receive);
  held.receive.reset();
}

Executor::Held Executor::receive(const Step& step, std::uint32_t lap, const Arriving& arriving) {
  const Clock::time_point began = Clock::now();
  const Transport::Received got =
      transport_.wait_receive(arriving.request, label("block", step.receive_block, lap, step.step + 1));
  const Clock::time_point ended = Clock::now();
  recorder_.end(arriving.record, {.done = got.arrived, .began = got.began});
  if (arriving.forward) recorder_.set_began(*arriving.forward, got.arrived);
  // Had the rank before sent it as soon as there was room for it here, it would have come earlier by as much
  // as that rank was late. What would have been waited for even so is the transfer's share.
  const Clock::duration late = std::max(Clock::duration::zero(), got.began - arriving.posted);
  const Clock::time_point sent =
      ended - std::clamp(got.arrived - late - began, Clock::duration::zero(), ended - began);
  Operation wait{.what = Operation::What::kWaitLate,
                 .block = step.receive_block,
                 .call = call_,
                 .lap = lap,
                 .step = step.step + 1,
                 .peer = step.receive_from};
  note(wait, began, sent, report_->exposed_late_s);
  wait.what = Operation::What::kWaitTransfer;
  note(wait, sent, ended, report_->exposed_transfer_s);
  report_->transfer_s += seconds(got.arrived - got.began);
  const MessageHeader& h = got.header;
  const std::int64_t expected = block_bytes(step.receive_block, lap);
  if (h.problem_digest != plan_.digest || h.call != call_ || h.lap != lap ||
      h.step != static_cast<std::uint32_t>(step.step + 1) || h.owner != step.receive_block ||
      std::ssize(got.payload) != expected) {
    throw TransportError(
        fmt::format("rank {} expected block {} of call {}, lap {}, step {} with {} bytes from rank {} and "
                    "got block {} of call {}, "
                    "lap {}, step {} with {} bytes{}",
                    plan_.rank, step.receive_block, call_, lap, step.step + 1, expected, step.receive_from,
                    h.owner, h.call, h.lap, h.step, got.payload.size(),
                    h.problem_digest == plan_.digest ? "" : ", of another problem"));
  }
  if (transport_.passes_pointers()) return {got.payload.data(), arriving.slot, arriving.request};
  transport_.release(arriving.request);
  return {got.payload.data(), arriving.slot, {}};
}

// Waits until the slot may be overwritten.
void Executor::free_slot(Slot& slot) {
  while (!slot.sends.empty()) {
    const Send& send = slot.sends.back();
    const Transport::Request request = *send.operation.request;
    const Clock::time_point began = Clock::now();
    const auto done = transport_.completed(request);
    transport_.wait_send(request, "the release of a block");
    const Clock::time_point ended = Clock::now();
    recorder_.end(send.record, {.done = done.value_or(ended)});
    if (!done)
      note({.what = Operation::What::kWaitSend,
            .block = send.operation.block,
            .call = send.operation.call,
            .lap = send.operation.lap,
            .step = send.operation.step,
            .peer = send.operation.peer},
           began, ended, report_->exposed_send_s);
    slot.sends.pop_back();
  }
}

void Executor::abandon(const std::string& reason) noexcept {
  transport_.fail(reason);
  for (Slot& slot : slots_) {
    for (const Send& send : slot.sends) {
      try {
        transport_.wait_send(*send.operation.request, "the release of a block");
      } catch (...) {
        // As expected after a failure; the wait is what matters.
      }
    }
    slot.sends.clear();
  }
}

std::string Executor::label(const char* what, int owner, std::uint32_t lap, int step) const {
  return fmt::format("{} {} (lap {}, step {} of {})", what, owner, lap, step, plan_.steps.size());
}

void Executor::report_progress(double done) {
  if (*progress_) (*progress_)(std::min(1.0, done / std::max(work_total_, 1.0)));
}

}  // namespace kvring
