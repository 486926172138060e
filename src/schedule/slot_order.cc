#include "schedule/slot_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"

namespace kvring {

SlotOrder::SlotOrder(Group own, Group arriving)
    : own_(own), arriving_(arriving), left_(own.slots + arriving.slots) {}

std::size_t SlotOrder::take_arriving(int owner) {
  return arriving_.slots == 0 ? take(0, own_, owner) : take(own_.slots, arriving_, owner);
}

std::size_t SlotOrder::take(std::size_t first, const Group& group, int owner) {
  const auto begin = left_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(group.slots);
  const auto slot =
      group.by_owner ? begin + std::min<std::ptrdiff_t>(owner, end - begin) : std::min_element(begin, end);
  if (slot == end || *slot == kInUse)
    throw Internal(fmt::format("no place for a parcel of rank {} among {}", owner, group.slots));
  *slot = kInUse;
  return static_cast<std::size_t>(slot - left_.begin());
}

}  // namespace kvring
