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

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Json operation_json(const Operation& o) {
  return {{"what", operation_name(o.what)},
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

const char* operation_name(Operation::What what) noexcept {
  switch (what) {
    case Operation::What::kSend:
      return "send";
    case Operation::What::kReceive:
      return "receive";
    case Operation::What::kAttend:
      return "attend";
  }
  return "unknown";
}

Recorder::Id Recorder::begin(Operation operation) {
  operation.posted = Operation::Clock::now();
  const std::lock_guard lock(mutex_);
  operations_[next_ % kOperations] = operation;
  return next_++;
}

void Recorder::end(Id id, Operation::Clock::time_point when) {
  const std::lock_guard lock(mutex_);
  if (id + kOperations < next_) return;  // overwritten
  std::optional<Operation::Clock::time_point>& done = operations_[id % kOperations].done;
  if (!done) done = when;
}

std::vector<Operation> Recorder::operations() const {
  std::vector<Operation> all;
  {
    const std::lock_guard lock(mutex_);
    for (Id id = next_ - std::min<Id>(next_, kOperations); id < next_; ++id)
      all.push_back(operations_[id % kOperations]);
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

std::string record_json(const RecordHead& head, const std::vector<Operation>& operations) {
  Json json = {{"schema_version", 1},
               {"rank", head.rank},
               {"ranks", head.ranks},
               {"host", host_name()},
               {"transport", head.transport},
               {"reason", head.reason},
               {"culprit", head.verdict.culprit < 0 ? Json() : Json(head.verdict.culprit)},
               {"verdict", head.verdict.text},
               {"epoch_s", epoch()},
               {"operations", Json::array()}};
  for (const Operation& operation : operations) json["operations"].push_back(operation_json(operation));
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvring
