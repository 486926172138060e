// Which slot a parcel takes. Pure index logic: the executor's memory and the simulator's waits go by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvring {

// The slots of one kind of parcel on one rank: own ones, then arriving ones.
class SlotOrder {
 public:
  struct Group {
    std::size_t slots = 0;
    bool by_owner = false;  // slot r takes what is about rank r
  };
  SlotOrder(Group own, Group arriving);

  // The slot for the next parcel that this rank makes, or that arrives: of those not in use the one that was
  // left first. Without arriving slots what arrives takes own ones. Throws Internal where all are in use.
  std::size_t take_own(int owner) { return take(0, own_, owner); }
  std::size_t take_arriving(int owner);
  void leave(std::size_t slot) { left_[slot] = ++leaves_; }

  std::size_t size() const noexcept { return left_.size(); }

 private:
  std::size_t take(std::size_t first, const Group& group, int owner);

  static constexpr std::uint64_t kInUse = UINT64_MAX;
  Group own_, arriving_;
  std::vector<std::uint64_t> left_;  // the when of its last parcel's end; kInUse: not yet
  std::uint64_t leaves_ = 0;
};

}  // namespace kvring
