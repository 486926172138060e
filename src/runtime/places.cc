#include "runtime/places.h"

#include <fmt/format.h>

#include "kvring/error.h"

namespace kvring {

Places::Places(const CargoSlots& sizes, int ranks, std::int64_t most_arriving)
    : own_by_owner_(sizes.own.by_owner),
      arriving_by_owner_(sizes.arriving.by_owner),
      held_(static_cast<std::size_t>(ranks)) {
  for (std::int64_t bytes : sizes.own.bytes) own_.emplace_back(bytes);
  for (std::int64_t bytes : sizes.arriving.bytes) arriving_.emplace_back(bytes);
  // Of two laps: while one is attended, the next ranks may still read what came in the one before.
  for (std::int64_t i = 0; i < 2 * most_arriving; ++i) arriving_.emplace_back(0);
}

Slot& Places::take_arriving(int owner) {
  return arriving_.empty() ? take(own_, own_by_owner_, owner) : take(arriving_, arriving_by_owner_, owner);
}

Slot& Places::take(std::vector<Slot>& slots, bool by_owner, int owner) {
  Slot* best = nullptr;
  if (by_owner) {
    best = &slots[static_cast<std::size_t>(owner)];
  } else {
    for (Slot& slot : slots) {
      if (!slot.in_use && (best == nullptr || slot.left < best->left)) best = &slot;
    }
  }
  if (best == nullptr || best->in_use)
    throw Internal(fmt::format("no place for a parcel of rank {} among {}", owner, slots.size()));
  best->in_use = true;
  return *best;
}

void Places::for_each_slot(const std::function<void(Slot&)>& visit) {
  for (Slot& slot : own_) visit(slot);
  for (Slot& slot : arriving_) visit(slot);
}

}  // namespace kvring
