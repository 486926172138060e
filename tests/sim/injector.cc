#include "tests/sim/injector.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kvring/transport.h"

namespace kvring::sim {

Injector::Injector(std::vector<Fault> faults) : faults_(std::move(faults)), fired_(faults_.size()) {
  remembers_ = std::ranges::any_of(faults_, [](const Fault& fault) {
    return fault.kind == FaultKind::kStale || fault.kind == FaultKind::kForeign;
  });
}

const Fault* Injector::fault_for(Class message_class, std::uint64_t index) const {
  for (const Fault& fault : faults_) {
    if (fault.of_message() && fault.message_class == message_class && fault.index == index) return &fault;
    if (fault.of_block() && message_class == Class::kHeader && fault.index == index) return &fault;
  }
  return nullptr;
}

bool Injector::touches(Class message_class, const Parcel& parcel) const {
  return remembers_ || redirected_.contains({parcel.from, parcel.to, parcel.tag}) ||
         fault_for(message_class, sent_[static_cast<std::size_t>(message_class)]) != nullptr;
}

void Injector::remember(Class message_class, const Parcel& parcel) {
  if (!remembers_ || (message_class != Class::kHeader && message_class != Class::kPiece)) return;
  history_[{parcel.from, parcel.to}][parcel.tag].messages.push_back(parcel.bytes);
}

std::vector<Parcel> Injector::apply(Class message_class, Parcel parcel, int ranks) {
  const std::uint64_t index = sent_[static_cast<std::size_t>(message_class)]++;
  const Way way{parcel.from, parcel.to, parcel.tag};
  if (const auto found = redirected_.find(way); found != redirected_.end()) {
    if (found->second < 0) return {};
    parcel.to = found->second;
    return {std::move(parcel)};
  }
  remember(message_class, parcel);
  const Fault* fault = fault_for(message_class, index);
  if (!fault) return {std::move(parcel)};
  const auto done = [&](std::vector<Parcel> arriving) {
    fired_[static_cast<std::size_t>(fault - faults_.data())] = true;
    return arriving;
  };
  switch (fault->kind) {
    case FaultKind::kDelay:
      parcel.late = fault->length;
      return done({std::move(parcel)});
    case FaultKind::kDrop:
      return done({});
    case FaultKind::kDuplicate:
      return done({parcel, parcel});
    case FaultKind::kFlip:
      if (parcel.bytes.empty()) return {std::move(parcel)};
      parcel.bytes[fault->detail / 8 % parcel.bytes.size()] ^= static_cast<std::byte>(1 << fault->detail % 8);
      return done({std::move(parcel)});
    case FaultKind::kTruncate:
      if (parcel.bytes.empty()) return {std::move(parcel)};
      parcel.bytes.resize(fault->detail % parcel.bytes.size());
      return done({std::move(parcel)});
    case FaultKind::kMisroute: {
      if (ranks < 3) return {std::move(parcel)};
      int other = static_cast<int>(fault->detail % static_cast<std::uint64_t>(ranks));
      while (other == parcel.from || other == parcel.to) other = (other + 1) % ranks;
      redirected_[way] = other;
      parcel.to = other;
      return done({std::move(parcel)});
    }
    default: {
      std::vector<Parcel> other = replace_block(*fault, parcel);
      if (other.empty()) return {std::move(parcel)};
      return done(std::move(other));
    }
  }
}

// The block that arrives in place of the one with this header; empty if there was none before.
std::vector<Parcel> Injector::replace_block(const Fault& fault, const Parcel& header) {
  const std::map<int, Block>& before = history_.at({header.from, header.to});
  if (before.size() < 2) return {};
  std::uint64_t which = fault.detail % (before.size() - 1);
  std::vector<Parcel> arriving;
  for (const auto& [tag, block] : before) {
    if (tag == header.tag || which-- > 0) continue;
    for (const std::vector<std::byte>& bytes : block.messages)
      arriving.push_back({header.from, header.to, header.tag, bytes, {}});
    break;
  }
  if (fault.kind == FaultKind::kForeign) {
    MessageHeader now, then;
    std::memcpy(&now, header.bytes.data(), sizeof now);
    std::memcpy(&then, arriving[0].bytes.data(), sizeof then);
    then.sequence = now.sequence;
    std::memcpy(arriving[0].bytes.data(), &then, sizeof then);
  }
  redirected_[{header.from, header.to, header.tag}] = -1;
  return arriving;
}

}  // namespace kvring::sim
