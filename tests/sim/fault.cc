#include "tests/sim/fault.h"

#include <fmt/format.h>

namespace kvring::sim {

const char* class_name(Class message_class) noexcept {
  constexpr std::array<const char*, kClasses> kNames = {"header", "piece", "control note", "collective"};
  return kNames[static_cast<std::size_t>(message_class)];
}

const char* fault_name(FaultKind kind) noexcept {
  constexpr std::array<const char*, kFaultKinds> kNames = {
      "delay",    "drop",  "duplicate", "flip",  "truncate", "stale", "foreign",
      "misroute", "pause", "stall",     "crash", "outage",   "cut",   "isolate"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool Fault::harmless() const noexcept {
  switch (kind) {
    case FaultKind::kDelay:
    case FaultKind::kPause:
    case FaultKind::kOutage:
      return true;
    // The next heartbeat says the same and more, and a rank that does not hear that another has finished has
    // finished itself, or is told by the network's silence.
    case FaultKind::kDrop:
    case FaultKind::kDuplicate:
    case FaultKind::kFlip:
    case FaultKind::kTruncate:
      return message_class == Class::kControl;
    default:
      return false;
  }
}

std::string describe(const Fault& fault) {
  const std::string name = fault_name(fault.kind);
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  if (fault.of_message() || fault.of_block()) {
    const std::string what = fault.of_block() ? "block" : class_name(fault.message_class);
    return fmt::format("{} of {} {} (detail {:x})", name, what, fault.index, fault.detail);
  }
  const std::string where = fault.of_rank() || fault.kind == FaultKind::kIsolate
                                ? fmt::format("rank {}", fault.rank)
                                : fmt::format("ranks {} and {}", fault.rank, fault.peer);
  const bool ends = fault.length != Duration::max();
  return fmt::format("{} of {} at {:.6f} s{}", name, where, seconds(fault.at - kStart),
                     ends ? fmt::format(" for {:.6f} s", seconds(fault.length)) : "");
}

}  // namespace kvring::sim
