#include "runtime/places.h"

namespace kvring {
namespace {

// Of two laps: while one is attended, the next ranks may still read what came in the one before.
SlotOrder order_of(const CargoSlots& sizes, std::int64_t most_arriving) {
  return {
      {sizes.own.bytes.size(), sizes.own.by_owner},
      {sizes.arriving.bytes.size() + 2 * static_cast<std::size_t>(most_arriving), sizes.arriving.by_owner}};
}

}  // namespace

Places::Places(const CargoSlots& sizes, int ranks, std::int64_t most_arriving)
    : own_slots_(sizes.own.bytes.size()),
      order_(order_of(sizes, most_arriving)),
      held_(static_cast<std::size_t>(ranks)) {
  for (std::int64_t bytes : sizes.own.bytes) slots_.emplace_back(bytes);
  for (std::int64_t bytes : sizes.arriving.bytes) slots_.emplace_back(bytes);
  while (slots_.size() < order_.size()) slots_.emplace_back(0);
}

void Places::for_each_slot(const std::function<void(Slot&)>& visit) {
  for (Slot& slot : slots_) visit(slot);
}

}  // namespace kvring
