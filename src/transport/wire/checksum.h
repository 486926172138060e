// XXH3 (64 bits) of a payload, in portions: whoever holds a lock meanwhile gives it back between them.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace kvring::wire {

std::uint64_t checksum_of(std::span<const std::byte> payload);

class Checksum {
 public:
  explicit Checksum(std::span<const std::byte> payload);
  // The next portion. True when that was the last.
  bool step();
  std::uint64_t value() const;  // after the last

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::span<const std::byte> rest_;
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace kvring::wire
