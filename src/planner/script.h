// The steps of all ranks, small and in the order in which a simulation plays them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kvring/operation.h"
#include "planner/setting.h"
#include "schedule/slot_order.h"
#include "schedule/step.h"

namespace kvring {

// What a rank does next; 8 bytes, since there are a few times as many as the square of the ranks. What the
// executor finds out in every lap (which parcels it holds, which it passes on) is settled here.
struct Instruction {
  enum class Kind : std::uint8_t {
    kTake,     // an own slot for a parcel of `who`, once nothing is sent from there
    kReceive,  // takes a slot likewise, then posts the receive
    kSend,     // of the parcel that is held
    kForward,  // of what receive `who` of the step brings, as it arrives
    kMeet,     // the block of `who` takes part in the next kAttend
    kAttend,
    kLeave,  // the parcel is not needed any more
    kWait,   // for all receives of the step, which ends
  };
  Kind kind = Kind::kWait;
  Cargo cargo = Cargo::kBlock;
  std::int16_t who = -1;  // owner of the parcel, of the queries, or of the block
  union {
    std::int32_t link = -1;  // of kReceive, kSend and kForward
    float pairs;             // of kMeet
  };
};
static_assert(sizeof(Instruction) == 8);

struct Script {
  // By rank: what it does in every lap.
  std::vector<std::vector<Instruction>> ranks;
  // Between any two ranks, in one direction, transfers go in order.
  struct Link {
    std::int32_t from = -1, to = -1;
  };
  std::vector<Link> links;
  std::int64_t steps = 0;      // of a rank, in a lap
  std::int64_t transfers = 0;  // of all ranks, in a lap
  // Of a lap, by cargo, then owner; where heads are shared out, of one share.
  std::array<std::vector<std::int64_t>, std::size(kCargos)> parcel_bytes;
  double share = 1;  // of a lap's heads that a rank attends

  struct Slots {
    SlotOrder::Group own, arriving;
  };
  std::array<Slots, std::size(kCargos)> slots;  // of every rank, by cargo

  std::int64_t bytes(Cargo cargo, int owner) const {
    return parcel_bytes[static_cast<std::size_t>(cargo)][static_cast<std::size_t>(owner)];
  }
};

// How many slots there are, the same on all ranks.
std::array<Script::Slots, std::size(kCargos)> script_slots(ScheduleKind kind, const Setting& setting);

// What schedule_steps() returns for every rank. Throws as it does, and Unsupported for more ranks than fit an
// instruction.
Script make_script(ScheduleKind kind, const Setting& setting);

}  // namespace kvring
