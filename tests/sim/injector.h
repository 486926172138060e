// Does the faults of messages and blocks to what is sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "tests/sim/fault.h"

namespace kvring::sim {

// A message as the network carries it.
struct Parcel {
  int from = 0, to = 0, tag = 0;
  std::vector<std::byte> bytes;
  Duration late{};
};

class Injector {
 public:
  explicit Injector(std::vector<Fault> faults);

  // Whether the next message of that class is changed in any way; otherwise nobody needs its bytes.
  bool touches(Class message_class, const Parcel& parcel) const;
  // What arrives instead, in this order.
  std::vector<Parcel> apply(Class message_class, Parcel parcel, int ranks);

  const std::array<std::uint64_t, kClasses>& sent() const noexcept { return sent_; }  // messages by class
  const std::vector<bool>& fired() const noexcept { return fired_; }                  // by fault

 private:
  using Way = std::tuple<int, int, int>;  // from, to, tag
  struct Block {
    std::vector<std::vector<std::byte>> messages;  // header first
  };

  const Fault* fault_for(Class message_class, std::uint64_t index) const;
  std::vector<Parcel> replace_block(const Fault& fault, const Parcel& header);
  void remember(Class message_class, const Parcel& parcel);

  std::vector<Fault> faults_;
  std::vector<bool> fired_;
  std::array<std::uint64_t, kClasses> sent_{};
  bool remembers_ = false;
  std::map<std::pair<int, int>, std::map<int, Block>> history_;  // by ranks, then tag
  std::map<Way, int> redirected_;                                // to where; -1: swallowed
};

}  // namespace kvring::sim
