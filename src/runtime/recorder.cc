#include "runtime/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "kvring/error.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;

double seconds(Operation::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// When the clock of the operations was 0, in seconds since 1970.
double epoch() {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - seconds(Operation::Clock::now());
}

Json operation_json(const Operation& o) {
  return {{"what", operation_name(o.what)},
          {"cargo", cargo_name(o.cargo)},
          {"block", o.block},
          {"call", o.call},
          {"lap", o.lap},
          {"step", o.step},
          {"peer", o.peer < 0 ? Json() : Json(o.peer)},
          {"bytes", o.bytes},
          {"posted_s", seconds(o.posted)},
          {"done_s", o.done ? Json(seconds(*o.done)) : Json()}};
}

}  // namespace

const char* cargo_name(Cargo cargo) noexcept {
  switch (cargo) {
    case Cargo::kBlock:
      return "block";
    case Cargo::kQueries:
      return "queries";
    case Cargo::kPartials:
      return "partials";
    case Cargo::kRows:
      return "rows";
  }
  return "unknown";
}

const char* operation_name(Operation::What what) noexcept {
  using What = Operation::What;
  switch (what) {
    case What::kSend:
      return "send";
    case What::kReceive:
      return "receive";
    case What::kAttend:
      return "attend";
    case What::kPack:
      return "pack";
    case What::kMerge:
      return "merge";
    case What::kFinish:
      return "finish";
    case What::kWaitLate:
      return "wait_late";
    case What::kWaitTransfer:
      return "wait_transfer";
    case What::kWaitSend:
      return "wait_send";
  }
  return "unknown";
}

void Recorder::keep_all() {
  const std::lock_guard lock(mutex_);
  operations_ = kept();
  first_ = next_ - operations_.size();
  all_ = true;
}

Operation* Recorder::find(Id id) {
  if (all_) return id < first_ ? nullptr : &operations_[id - first_];
  return id + kOperations < next_ ? nullptr : &operations_[id % kOperations];
}

std::vector<Operation> Recorder::kept() const {
  if (all_) return operations_;
  std::vector<Operation> kept;
  for (Id id = next_ - std::min<Id>(next_, kOperations); id < next_; ++id)
    kept.push_back(operations_[id % kOperations]);
  return kept;
}

Recorder::Id Recorder::begin(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (all_)
    operations_.push_back(operation);
  else
    operations_[next_ % kOperations] = operation;
  return next_++;
}

void Recorder::end(Id id, const Ending& ending) {
  const std::lock_guard lock(mutex_);
  Operation* operation = find(id);
  if (operation == nullptr || operation->done) return;
  operation->done = ending.done;
  if (ending.began) operation->began = ending.began;
  operation->tiles = ending.tiles;
}

void Recorder::set_began(Id id, Operation::Clock::time_point began) {
  const std::lock_guard lock(mutex_);
  if (Operation* operation = find(id)) operation->began = began;
}

std::vector<Operation> Recorder::operations() const {
  std::vector<Operation> all;
  {
    const std::lock_guard lock(mutex_);
    all = kept();
  }
  for (Operation& operation : all) {
    if (operation.done || !operation.request) continue;
    try {
      operation.done = transport_.completed(*operation.request);
    } catch (const Internal&) {
      // It ended, and was forgotten, after this list was made.
      operation.done = Operation::Clock::now();
    }
  }
  return all;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string record_json(const RecordHead& head, const std::vector<Operation>& operations) {
  Json json = {{"schema_version", 1},
               {"rank", head.rank},
               {"ranks", head.ranks},
               {"host", host_name()},
               {"transport", head.transport},
               {"reason", head.reason},
               {"culprit", head.verdict.culprit < 0 ? Json() : Json(head.verdict.culprit)},
               {"verdict", head.verdict.text},
               {"silent", head.verdict.silent},
               {"epoch_s", epoch()},
               {"operations", Json::array()}};
  for (const Operation& operation : operations) json["operations"].push_back(operation_json(operation));
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvring
