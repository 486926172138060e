// What can go wrong, as data: a run's faults follow from its seed before it begins.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/sim/scheduler.h"

namespace kvring::sim {

// What a message is for.
enum class Class : std::uint8_t { kHeader, kPiece, kControl, kCollective };
inline constexpr std::size_t kClasses = 4;
const char* class_name(Class message_class) noexcept;

enum class FaultKind : std::uint8_t {
  // Of one message.
  kDelay,      // late, by less than the deadline
  kDrop,       // never arrives
  kDuplicate,  // arrives twice
  kFlip,       // one bit differs
  kTruncate,   // its end is missing
  // Of one block, named by its header.
  kStale,     // an earlier one of the same two ranks arrives in its place
  kForeign,   // the same, but numbered as if it were this one
  kMisroute,  // it goes to another rank
  // Of a rank.
  kPause,  // does not run, for less than the deadline
  kStall,  // ... for longer
  kCrash,  // never runs again
  // Of the links of two ranks, or of one rank to all others.
  kOutage,   // nothing passes, for less than the deadline; what was sent arrives later
  kCut,      // nothing passes any more
  kIsolate,  // ... between one rank and all others
};
inline constexpr std::size_t kFaultKinds = 14;
const char* fault_name(FaultKind kind) noexcept;

struct Fault {
  FaultKind kind = FaultKind::kDrop;
  // Of a message or block: the index-th of its class in the whole run, in order of sending; and what decides
  // which bit, which block, which length.
  Class message_class = Class::kHeader;
  std::uint64_t index = 0;
  std::uint64_t detail = 0;
  // Of a rank or link.
  int rank = 0, peer = 0;
  Time at = kNever;
  Duration length{};

  bool of_message() const noexcept { return kind <= FaultKind::kTruncate; }
  bool of_block() const noexcept { return kind >= FaultKind::kStale && kind <= FaultKind::kMisroute; }
  bool of_rank() const noexcept { return kind >= FaultKind::kPause && kind <= FaultKind::kCrash; }
  bool of_link() const noexcept { return kind >= FaultKind::kOutage; }
  // Must heal: all ranks end with the right bits.
  bool harmless() const noexcept;
};
std::string describe(const Fault& fault);

}  // namespace kvring::sim
