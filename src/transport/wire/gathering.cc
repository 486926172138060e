#include "transport/wire/gathering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "kvring/error.h"
#include "transport/wire/checksum.h"

namespace kvring::wire {
namespace {

std::uint64_t lengths_checksum(std::uint64_t length, std::uint64_t checksum) {
  const std::array<std::uint64_t, 2> both = {length, checksum};
  return checksum_of(std::as_bytes(std::span(both)));
}

[[noreturn]] void throw_damaged(std::size_t rank) {
  throw TransportError(
      fmt::format("what rank {} told all ranks was damaged on its way: its checksum differs", rank));
}

}  // namespace

struct Gathering::Round {
  std::string mine, all;
  Gather gather;

  // With counts and offsets set.
  std::shared_ptr<const Gather> ready(const std::shared_ptr<Round>& self) {
    all.resize(static_cast<std::size_t>(gather.offsets.back() + gather.counts.back()));
    gather.mine = std::as_bytes(std::span(mine));
    gather.all = std::as_writable_bytes(std::span(all));
    return {self, &gather};
  }
};

Gathering::Gathering(std::string mine, int ranks, std::size_t largest_piece)
    : mine_(std::move(mine)), largest_piece_(largest_piece), all_(static_cast<std::size_t>(ranks)) {}

bool Gathering::pump(Wire& wire) {
  if (done_) return false;
  if (!round_) {
    begin_lengths(wire);
    return true;
  }
  if (!wire.test(operation_)) return false;
  collect();
  if (begin_ < longest_) {
    begin_round(wire);
  } else {
    check_strings();
    done_ = true;
  }
  return true;
}

void Gathering::begin_lengths(Wire& wire) {
  constexpr int kBytes = sizeof(Announcement);
  round_ = std::make_shared<Round>();
  Announcement mine{mine_.size(), checksum_of(std::as_bytes(std::span(mine_))), 0};
  mine.lengths_checksum = lengths_checksum(mine.length, mine.checksum);
  round_->mine.assign(reinterpret_cast<const char*>(&mine), kBytes);
  for (std::size_t r = 0; r < all_.size(); ++r) {
    round_->gather.counts.push_back(kBytes);
    round_->gather.offsets.push_back(static_cast<int>(r) * kBytes);
  }
  operation_ = wire.allgather(round_->ready(round_));
}

void Gathering::begin_round(Wire& wire) {
  const std::uint64_t most = std::max<std::uint64_t>(1, largest_piece_ / all_.size());
  const auto part = [&](std::uint64_t length) {
    return length > begin_ ? std::min(most, length - begin_) : 0;
  };
  round_ = std::make_shared<Round>();
  round_->mine = mine_.substr(std::min<std::size_t>(begin_, mine_.size()), part(mine_.size()));
  int offset = 0;
  for (const Announcement& announced : announced_) {
    round_->gather.offsets.push_back(offset);
    round_->gather.counts.push_back(static_cast<int>(part(announced.length)));
    offset += round_->gather.counts.back();
  }
  begin_ += most;
  operation_ = wire.allgather(round_->ready(round_));
}

void Gathering::collect() {
  if (announced_.empty()) return collect_lengths();
  for (std::size_t r = 0; r < all_.size(); ++r)
    all_[r].append(round_->all, static_cast<std::size_t>(round_->gather.offsets[r]),
                   static_cast<std::size_t>(round_->gather.counts[r]));
}

void Gathering::collect_lengths() {
  announced_.resize(all_.size());
  std::memcpy(announced_.data(), round_->all.data(), round_->all.size());
  for (std::size_t r = 0; r < all_.size(); ++r) {
    const Announcement& a = announced_[r];
    if (a.lengths_checksum != lengths_checksum(a.length, a.checksum)) throw_damaged(r);
    longest_ = std::max(longest_, a.length);
  }
}

void Gathering::check_strings() const {
  for (std::size_t r = 0; r < all_.size(); ++r)
    if (checksum_of(std::as_bytes(std::span(all_[r]))) != announced_[r].checksum) throw_damaged(r);
}

}  // namespace kvring::wire
