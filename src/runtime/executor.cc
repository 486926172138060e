#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>

#include "kvring/error.h"
#include "runtime/failure.h"
#include "schedule/parcel.h"

namespace kvring {
namespace {

double seconds(Operation::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Executor::Executor(const ExecutionPlan& plan, Transport& transport, int threads)
    : plan_(plan),
      transport_(transport),
      recorder_(transport),
      attention_(plan.problem, threads),
      relay_(plan.steps, plan.rank, static_cast<int>(plan.layouts.q.shards.size())),
      threads_(threads) {
  const auto ranks = static_cast<int>(plan.layouts.q.shards.size());
  for (const Cargo cargo : kCargos)
    places_.emplace_back(plan.sizes.of(cargo), ranks,
                         transport.passes_pointers() ? relay_.arriving(cargo) : 0);
  panels_.resize(static_cast<std::size_t>(ranks));
  std::size_t most_states = 0;
  const std::int64_t units = share_of({0, plan.sizes.units}, relay_.share(), ranks).units();
  for (int owner = 0; owner < ranks; ++owner) {
    if (!relay_.meets(owner)) continue;
    const Shard& queries = plan.layouts.q.shards[static_cast<std::size_t>(owner)];
    panels_[static_cast<std::size_t>(owner)].emplace(plan.problem, queries);
    most_states = std::max(
        most_states,
        static_cast<std::size_t>(panel_states({plan.problem, queries, units, plan.sizes.meetings, threads})));
  }
  sets_.resize(places(Cargo::kPartials).own_slots());
  for (QuerySet& set : sets_) {
    set.kv_heads = plan.problem.kv_heads;
    set.most_units = units;
    set.used.reserve(most_states);
  }
}

Executor::~Executor() {
  for (Places& places : places_) {
    places.for_each_slot([&](Slot& slot) {
      try {
        free_slot(slot);
      } catch (const Error&) {
        // The wait itself is what matters here: when it gives up, nobody reads the parcel any more.
      }
    });
  }
}

void Executor::run(const RankTensors& tensors, const std::function<void(double)>& progress,
                   RankReport& report) {
  tensors_ = &tensors;
  progress_ = &progress;
  report_ = &report;
  std::int64_t attended = 0;
  for (const Step& step : plan_.steps) attended += std::ssize(step.attends);
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
  report.tiles_skipped = plan_.tile_pairs - report.tiles_full - report.tiles_partial;
  if (progress) progress(1.0);
}

// As the steps say: post the sends and the receives, and already that what arrives goes on, then attend, then
// wait for the receives.
void Executor::run_lap(std::uint32_t lap) {
  lap_ = lap;
  begin_lap();
  for (const Step& step : plan_.steps) {
    arriving_.clear();
    // What came from others may have gone on as it arrived.
    for (std::size_t i = 0; i < step.sends.size(); ++i) {
      if (!relay_.forwarded(step.step, i)) send(step, step.sends[i]);
    }
    for (const Transfer& transfer : step.receives) arriving_.push_back(post_receive(step, transfer));
    for (std::size_t i = 0; i < arriving_.size(); ++i) {
      if (const int to = relay_.forward_to(step.step, i); to >= 0) forward(step, arriving_[i], to);
    }
    attend(step);
    leave_used(step.step);
    for (const Arriving& arriving : arriving_) receive(step, arriving);
    finish(step);
  }
  end_lap();
}

// What this rank owns becomes parcels.
void Executor::begin_lap() {
  const Lap& lap = plan_.laps[lap_];
  const auto make = [&](Cargo cargo) -> Slot& {
    Slot& slot = places(cargo).take_own(plan_.rank);
    free_slot(slot);
    const std::int64_t unit = parcel_bytes(plan_.problem, plan_.layouts, cargo, plan_.rank, 1);
    places(cargo)[plan_.rank] = {slot.memory.data(), &slot, lap, unit};
    return slot;
  };
  std::byte* const block = make(Cargo::kBlock).memory.data();
  std::byte* const queries =
      relay_.sends_own(Cargo::kQueries) ? make(Cargo::kQueries).memory.data() : nullptr;
  timed(operation(Operation::What::kPack, {Cargo::kBlock, plan_.rank}, 0), [&] {
    pack_block(lap, block);
    if (queries == nullptr) return;
    attention_.pack_queries(lap, *panels_[static_cast<std::size_t>(plan_.rank)], *tensors_, plan_.problem,
                            queries);
  });
}

void Executor::pack_block(const Lap& lap, std::byte* block) {
  const BlockMap& map = plan_.blocks[static_cast<std::size_t>(plan_.rank)];
  const PackedKeys& packed = tensors_->packed;
  if (packed.data == nullptr) return attention_.pack(lap, map, {tensors_->k, tensors_->v}, block);
  const std::byte* const from = packed.data + lap.kv_begin * packed.unit_bytes;
  if (!relay_.sends_own(Cargo::kBlock)) {
    Held& held = places(Cargo::kBlock)[plan_.rank];
    held.data = from;
    held.unit_bytes = packed.unit_bytes;
    return;
  }
  attention_.copy_units(lap, from, packed.unit_bytes, block, map.bytes(1));
}

// What is not used any more is left; what others were lent goes back, since they cannot end before.
void Executor::end_lap() {
  for (const Cargo cargo : kCargos) {
    for (int owner = 0; owner < static_cast<int>(panels_.size()); ++owner) leave(cargo, owner);
    places(cargo).for_each_slot([&](Slot& slot) {
      if (slot.lent) free_slot(slot);
    });
  }
}

Lap Executor::units_of(const Parcel& parcel) const {
  return share_of(plan_.laps[lap_], parcel.share, static_cast<int>(panels_.size()));
}

std::int64_t Executor::bytes_of(const Parcel& parcel) const {
  return parcel_bytes(plan_.problem, plan_.layouts, parcel.cargo, parcel.owner, units_of(parcel).units());
}

const std::byte* Executor::part_of(const Held& held, const Parcel& parcel) const {
  return held.data + (units_of(parcel).kv_begin - held.units.kv_begin) * held.unit_bytes;
}

QuerySet& Executor::queries_of(int owner) {
  Places& accumulators = places(Cargo::kPartials);
  if (accumulators[owner].data != nullptr) return sets_[accumulators.index(*accumulators[owner].slot)];
  Slot& slot = accumulators.take_own(owner);
  free_slot(slot);
  const Lap units = units_of({Cargo::kQueries, owner, relay_.share()});
  accumulators[owner] = {slot.memory.data(), &slot, units};
  const Problem& p = plan_.problem;
  const Shard& shard = plan_.layouts.q.shards[static_cast<std::size_t>(owner)];
  QuerySet& set = sets_[accumulators.index(slot)];
  set.panels = &*panels_[static_cast<std::size_t>(owner)];
  set.units = units;
  set.sinks = tensors_->sinks;
  set.cut = cut_work({p, shard, set.most_units, plan_.sizes.meetings, threads_});
  set.sums = slot.memory.data();
  set.used.assign(
      static_cast<std::size_t>(panel_states({p, shard, set.most_units, plan_.sizes.meetings, threads_})), 0);
  set.finished = false;
  if (owner == plan_.rank) {
    read_and_write(set, *tensors_, p);
    return set;
  }
  set.rows = {units.kv_begin, 1};
  set.q = parcel_queries(p, places(Cargo::kQueries)[owner].data, shard.tokens(), units.units());
  if (!relay_.finishes(owner)) return set;
  Slot& rows = places(Cargo::kRows).take_own(owner);
  free_slot(rows);
  places(Cargo::kRows)[owner] = {rows.memory.data(), &rows, units};
  const RowsParcel parcel = parcel_rows(p, rows.memory.data(), shard, units.units());
  set.out = parcel.out;
  set.lse = parcel.lse;
  return set;
}

void Executor::attend(const Step& step) {
  for (std::size_t i = 0; i < step.attends.size();) {
    const std::int32_t queries = step.attends[i].queries;
    Operation meeting =
        operation(Operation::What::kAttend, {Cargo::kBlock, step.attends[i].block}, step.step);
    if (queries != plan_.rank) meeting.queries = queries;
    met_.clear();
    for (; i < step.attends.size() && step.attends[i].queries == queries; ++i) {
      const std::int32_t owner = step.attends[i].block;
      const Held& held = places(Cargo::kBlock)[owner];
      met_.push_back({&plan_.blocks[static_cast<std::size_t>(owner)],
                      part_of(held, {Cargo::kBlock, owner, relay_.share()}), held.unit_bytes});
    }
    QuerySet& set = queries_of(queries);
    const auto blocks = static_cast<double>(met_.size());
    timed(meeting, [&] {
      const Operation::Tiles tiles = attention_.attend(set, met_, [&](double share) {
        transport_.progress();
        report_progress(work_done_ + share * blocks);
      });
      report_->tiles_full += tiles.full;
      report_->tiles_partial += tiles.partial;
      return tiles;
    });
    work_done_ += blocks;
  }
}

void Executor::finish(const Step& step) {
  for (const std::int32_t owner : step.finishes) {
    QuerySet& set = queries_of(owner);
    timed(operation(Operation::What::kFinish, {Cargo::kRows, owner}, step.step),
          [&] { attention_.finish(set); });
    leave(Cargo::kPartials, owner);
  }
}

template <typename Work>
void Executor::timed(Operation operation, Work work) {
  operation.posted = Clock::now();
  const Recorder::Id record = recorder_.begin(operation);
  if constexpr (std::is_void_v<std::invoke_result_t<Work>>)
    work();
  else
    operation.tiles = work();
  const Clock::time_point done = Clock::now();
  recorder_.end(record, {.done = done, .tiles = operation.tiles});
  report_->compute_s += seconds(done - operation.posted);
}

void Executor::note(Operation operation, Clock::time_point from, Clock::time_point to, double& total) {
  if (to <= from) return;
  operation.posted = from;
  operation.done = to;
  recorder_.begin(operation);
  total += seconds(to - from);
}

Operation Executor::operation(Operation::What what, const Parcel& parcel, int step) const {
  return {
      .what = what, .cargo = parcel.cargo, .block = parcel.owner, .call = call_, .lap = lap_, .step = step};
}

Executor::Arriving Executor::post_receive(const Step& step, const Transfer& transfer) {
  Arriving arriving{.parcel = transfer.parcel, .from = transfer.peer};
  arriving.slot = &places(transfer.parcel.cargo).take_arriving(transfer.parcel.owner);
  free_slot(*arriving.slot);
  Operation receive = operation(Operation::What::kReceive, transfer.parcel, step.step + 1);
  receive.peer = transfer.peer;
  receive.bytes = bytes_of(transfer.parcel);
  std::span<std::byte> buffer;
  if (!transport_.passes_pointers())
    buffer = {arriving.slot->memory.data(), static_cast<std::size_t>(receive.bytes)};
  arriving.posted = Clock::now();
  arriving.request = transport_.post_receive(transfer.peer, buffer);
  receive.request = arriving.request;
  receive.posted = Clock::now();
  arriving.record = recorder_.begin(receive);
  return arriving;
}

// What arrives goes on without this rank's doing. Sends of one link are posted in the order of their steps:
// after this step's own.
void Executor::forward(const Step& step, Arriving& arriving, int to) {
  Operation send = operation(Operation::What::kSend, arriving.parcel, step.step + 2);
  send.peer = to;
  send.bytes = bytes_of(arriving.parcel);
  arriving.forward = track_send(transport_.post_forward(arriving.request, to), send, *arriving.slot);
}

void Executor::send(const Step& step, const Transfer& transfer) {
  const Parcel& parcel = transfer.parcel;
  if (parcel.cargo == Cargo::kPartials) {
    QuerySet& set = queries_of(parcel.owner);
    timed(operation(Operation::What::kMerge, parcel, step.step), [&] { attention_.gather_partials(set); });
  }
  const Held& held = places(parcel.cargo)[parcel.owner];
  MessageHeader header;
  header.problem_digest = plan_.digest;
  header.call = call_;
  header.lap = lap_;
  header.step = static_cast<std::uint32_t>(step.step + 1);
  header.owner = parcel.owner;
  header.cargo = static_cast<std::uint32_t>(parcel.cargo);
  header.share = parcel.share;
  Operation send = operation(Operation::What::kSend, parcel, step.step + 1);
  send.peer = transfer.peer;
  send.bytes = bytes_of(parcel);
  const std::span<const std::byte> payload(part_of(held, parcel), static_cast<std::size_t>(send.bytes));
  track_send(transport_.post_send(transfer.peer, header, payload), send, *held.slot);
  held.slot->lent |= held.slot->receive.has_value();
}

Recorder::Id Executor::track_send(Transport::Request request, Operation operation, Slot& slot) {
  operation.request = request;
  operation.posted = Clock::now();
  const Recorder::Id record = recorder_.begin(operation);
  slot.sends.push_back({operation, record});
  report_->bytes_sent += operation.bytes;
  report_->hops += 1;
  return record;
}

void Executor::leave(Cargo cargo, int owner) {
  const Held& held = places(cargo)[owner];
  if (held.slot == nullptr) return;
  Slot& slot = *held.slot;
  if (slot.receive && !slot.lent) {
    transport_.release(*slot.receive);
    slot.receive.reset();
  }
  places(cargo).leave(owner);
}

void Executor::leave_used(int step) {
  for (const Relay::Use& use : relay_.last_uses(step)) {
    // Accumulators that are sent; those of finished rows are left when the rows are.
    leave(use.cargo, use.owner);
  }
}

Transport::Received Executor::wait_for(const Step& step, const Arriving& arriving) {
  const Clock::time_point began = Clock::now();
  const Transport::Received got =
      transport_.wait_receive(arriving.request, label(arriving.parcel, step.step + 1));
  const Clock::time_point ended = Clock::now();
  recorder_.end(arriving.record, {.done = got.arrived, .began = got.began});
  if (arriving.forward) recorder_.set_began(*arriving.forward, got.arrived);
  // Had the other rank sent it as soon as there was room for it here, it would have come earlier by as much
  // as that rank was late. What would have been waited for even so is the transfer's share.
  const Clock::duration late = std::max(Clock::duration::zero(), got.began - arriving.posted);
  const Clock::time_point sent =
      ended - std::clamp(got.arrived - late - began, Clock::duration::zero(), ended - began);
  Operation wait = operation(Operation::What::kWaitLate, arriving.parcel, step.step + 1);
  wait.peer = arriving.from;
  note(wait, began, sent, report_->exposed_late_s);
  wait.what = Operation::What::kWaitTransfer;
  note(wait, sent, ended, report_->exposed_transfer_s);
  report_->transfer_s += seconds(got.arrived - got.began);
  return got;
}

void Executor::check_header(const Step& step, const Arriving& arriving,
                            const Transport::Received& got) const {
  const MessageHeader& h = got.header;
  const Parcel& due = arriving.parcel;
  const std::int64_t expected = bytes_of(due);
  if (h.problem_digest == plan_.digest && h.call == call_ && h.lap == lap_ &&
      h.step == static_cast<std::uint32_t>(step.step + 1) && h.owner == due.owner &&
      h.cargo == static_cast<std::uint32_t>(due.cargo) && h.share == due.share &&
      std::ssize(got.payload) == expected)
    return;
  const auto cargo = h.cargo < std::size(kCargos) ? cargo_name(static_cast<Cargo>(h.cargo)) : "unknown cargo";
  throw TransportError(
      fmt::format("rank {} expected {} {} of call {}, lap {}, step {} with {} bytes from rank {} and got {} "
                  "{} of call {}, "
                  "lap {}, step {} with {} bytes{}{}",
                  plan_.rank, cargo_name(due.cargo), due.owner, call_, lap_, step.step + 1, expected,
                  arriving.from, cargo, h.owner, h.call, h.lap, h.step, got.payload.size(),
                  h.share == due.share ? "" : fmt::format(", of the heads of rank {}", h.share),
                  h.problem_digest == plan_.digest ? "" : ", of another problem"));
}

void Executor::receive(const Step& step, const Arriving& arriving) {
  const Transport::Received got = wait_for(step, arriving);
  check_header(step, arriving, got);
  if (transport_.passes_pointers())
    arriving.slot->receive = arriving.request;
  else
    transport_.release(arriving.request);
  take_in(arriving, got.payload);
}

// Partials and rows end here; what is to be attended or sent on stays.
void Executor::take_in(const Arriving& arriving, std::span<const std::byte> payload) {
  const Parcel& parcel = arriving.parcel;
  const Lap units = units_of(parcel);
  if (parcel.cargo == Cargo::kBlock || parcel.cargo == Cargo::kQueries) {
    const std::int64_t unit = parcel_bytes(plan_.problem, plan_.layouts, parcel.cargo, parcel.owner, 1);
    places(parcel.cargo)[parcel.owner] = {payload.data(), arriving.slot, units, unit};
    return;
  }
  timed(operation(Operation::What::kMerge, parcel, plan_.steps.back().step), [&] {
    if (parcel.cargo == Cargo::kPartials) {
      attention_.merge(queries_of(parcel.owner), payload.data());
      return;
    }
    const Shard& rows = plan_.layouts.q.shards[static_cast<std::size_t>(parcel.owner)];
    attention_.unpack_rows(
        units, parcel_rows(plan_.problem, const_cast<std::byte*>(payload.data()), rows, units.units()),
        *tensors_, plan_.problem);
  });
  Slot& slot = *arriving.slot;
  if (slot.receive) transport_.release(*slot.receive);
  slot.receive.reset();
  places(parcel.cargo).leave(slot);
}

// Waits until something else may lie in the slot.
void Executor::free_slot(Slot& slot) {
  while (!slot.sends.empty()) {
    const Slot::Send& send = slot.sends.back();
    const Transport::Request request = *send.operation.request;
    const Clock::time_point began = Clock::now();
    const auto done = transport_.completed(request);
    transport_.wait_send(request, "the release of a block");
    const Clock::time_point ended = Clock::now();
    recorder_.end(send.record, {.done = done.value_or(ended)});
    if (!done) {
      Operation wait = send.operation;
      wait.what = Operation::What::kWaitSend;
      wait.bytes = 0;
      wait.request.reset();
      note(wait, began, ended, report_->exposed_send_s);
    }
    slot.sends.pop_back();
  }
  if (slot.receive) transport_.release(*slot.receive);
  slot.receive.reset();
  slot.lent = false;
}

void Executor::abandon(const std::string& reason) noexcept {
  transport_.fail(reason);
  for (Places& places : places_) {
    places.for_each_slot([&](Slot& slot) {
      for (const Slot::Send& send : slot.sends) {
        try {
          transport_.wait_send(*send.operation.request, "the release of a block");
        } catch (...) {
          // As expected after a failure; the wait is what matters.
        }
      }
      slot.sends.clear();
    });
  }
}

std::string Executor::label(const Parcel& parcel, int step) const {
  return fmt::format("{} {} (lap {}, step {} of {})", cargo_name(parcel.cargo), parcel.owner, lap_, step,
                     plan_.steps.size());
}

void Executor::report_progress(double done) {
  if (*progress_) (*progress_)(std::min(1.0, done / std::max(work_total_, 1.0)));
}

}  // namespace kvring
