#include "trace/trace.h"

#include <algorithm>

namespace kvring {

const char* track_name(Track track) noexcept {
  switch (track) {
    case Track::kCompute:
      return "compute";
    case Track::kWait:
      return "wait";
    case Track::kReceive:
      return "receive";
    case Track::kSend:
      return "send";
  }
  return "unknown";
}

Track track_of(Operation::What what) noexcept {
  switch (what) {
    case Operation::What::kSend:
      return Track::kSend;
    case Operation::What::kReceive:
      return Track::kReceive;
    case Operation::What::kAttend:
    case Operation::What::kPack:
    case Operation::What::kMerge:
    case Operation::What::kFinish:
      return Track::kCompute;
    case Operation::What::kWaitLate:
    case Operation::What::kWaitTransfer:
    case Operation::What::kWaitSend:
      return Track::kWait;
  }
  return Track::kCompute;
}

std::int64_t nanoseconds(Operation::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

Operation::Clock::time_point at_nanoseconds(std::int64_t time) {
  return Operation::Clock::time_point(std::chrono::nanoseconds(time));
}

Span span_of(const Operation& operation) {
  Span span;
  span.begin = nanoseconds(operation.posted);
  if (operation.began) {
    const std::int64_t began = nanoseconds(*operation.began);
    const bool send = operation.what == Operation::What::kSend;
    span.begin = send ? std::max(span.begin, began) : std::min(span.begin, began);
  }
  span.end = operation.done ? std::max(span.begin, nanoseconds(*operation.done)) : span.begin;
  return span;
}

}  // namespace kvring
