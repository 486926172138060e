#include "transport/wire/checksum.h"

#include <algorithm>
#include <new>

namespace kvring::wire {

std::uint64_t checksum_of(std::span<const std::byte> payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

Checksum::Checksum(std::span<const std::byte> payload) : rest_(payload), state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

bool Checksum::step() {
  constexpr std::size_t kPortion = std::size_t{1} << 20;  // about 0.1 ms
  const std::size_t portion = std::min(kPortion, rest_.size());
  XXH3_64bits_update(state_.get(), rest_.data(), portion);
  rest_ = rest_.subspan(portion);
  return rest_.empty();
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace kvring::wire
