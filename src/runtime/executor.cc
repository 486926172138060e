#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

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
  attention_.reset_tiles();
  try {
    for (std::size_t lap = 0; lap < plan_.laps.size(); ++lap) run_lap(static_cast<std::uint32_t>(lap));
  } catch (...) {
    abandon(current_failure());
    throw;
  }
  ++call_;
  std::int64_t pieces = 0;
  for (const BlockMap& block : plan_.blocks) pieces += std::ssize(block.pieces());
  report.tiles_full = attention_.tiles().full;
  report.tiles_partial = attention_.tiles().partial;
  const std::int64_t units = plan_.problem.batch * plan_.problem.kv_heads;
  report.tiles_skipped = units * attention_.panels() * pieces - report.tiles_full - report.tiles_partial;
  if (progress) progress(1.0);
}

// The ring, as the steps say it: post the receive, post the send, attend, wait for the receive.
void Executor::run_lap(std::uint32_t lap) {
  const Lap& heads = plan_.laps[lap];
  const int own = static_cast<int>(laps_run_++ % slots_.size());
  Slot& own_slot = slots_[static_cast<std::size_t>(own)];
  free_slot(own_slot);
  begin_lap(heads, own_slot);
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
    if (step.attend) attend_block(step, held.data);
    let_go(held);
    if (arriving) held = receive(step, lap, *arriving, held);
  }
  const Stopwatch watch(report_->compute_s);
  attention_.finish(*tensors_);
}

void Executor::begin_lap(const Lap& lap, Slot& slot) {
  const Stopwatch watch(report_->compute_s);
  const BlockMap& map = plan_.blocks[static_cast<std::size_t>(plan_.rank)];
  attention_.pack(lap, map, {tensors_->k, tensors_->v}, slot.block.data());
  attention_.begin(lap);
}

void Executor::attend_block(const Step& step, const std::byte* block) {
  const Stopwatch watch(report_->compute_s);
  attention_.attend(*tensors_, plan_.blocks[static_cast<std::size_t>(step.block)], block,
                    [this](double share) {
                      transport_.progress();
                      report_progress(work_done_ + share);
                    });
  work_done_ += 1;
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

std::string Executor::label(const char* what, int owner, std::uint32_t lap, int step) const {
  return fmt::format("{} {} (lap {}, step {} of {})", what, owner, lap, step, plan_.steps.size());
}

void Executor::report_progress(double done) {
  if (*progress_) (*progress_)(std::min(1.0, done / std::max(work_total_, 1.0)));
}

}  // namespace kvring
