// Where parcels lie on one rank while they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kvring/transport.h"
#include "runtime/recorder.h"
#include "schedule/memory.h"
#include "schedule/slot_order.h"
#include "schedule/step.h"
#include "tensor/buffer.h"

namespace kvring {

// A place for one parcel at a time, and the transfers that must be over before the next may lie there.
struct Slot {
  struct Send {
    Operation operation;
    Recorder::Id record;
  };
  explicit Slot(std::int64_t bytes) : memory(bytes) {}

  AlignedBuffer memory;  // none for another rank's memory, passed by pointer
  std::vector<Send> sends;
  std::optional<Transport::Request> receive{};  // not yet released
  bool lent = false;                            // another rank's memory, sent on from here
};

// A parcel that is here.
struct Held {
  const std::byte* data = nullptr;  // null: it is not
  Slot* slot = nullptr;
  Lap units;                    // that it carries
  std::int64_t unit_bytes = 0;  // of a block or queries: from one unit to the next
};

// The slots of one kind of parcel, and the parcels in them by owner.
class Places {
 public:
  // `most_arriving`: parcels of a lap that may arrive as pointers, 0 where none do.
  Places(const CargoSlots& sizes, int ranks, std::int64_t most_arriving);

  // The slot for the next parcel that this rank makes, or that arrives. What still reads it has to be waited
  // for.
  Slot& take_own(int owner) { return slots_[order_.take_own(owner)]; }
  Slot& take_arriving(int owner) { return slots_[order_.take_arriving(owner)]; }

  Held& operator[](int owner) { return held_[static_cast<std::size_t>(owner)]; }
  // The parcel is not needed any more.
  void leave(int owner) { leave(*held_[static_cast<std::size_t>(owner)].slot), (*this)[owner] = {}; }
  void leave(const Slot& slot) { order_.leave(index(slot)); }

  void for_each_slot(const std::function<void(Slot&)>& visit);
  // Own slots come first.
  std::size_t index(const Slot& slot) const { return static_cast<std::size_t>(&slot - slots_.data()); }
  std::size_t own_slots() const noexcept { return own_slots_; }

 private:
  std::size_t own_slots_;
  SlotOrder order_;
  std::vector<Slot> slots_;
  std::vector<Held> held_;
};

}  // namespace kvring
