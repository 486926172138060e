#include "transport/wire/gathering.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvring::wire {

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
  if (begin_ >= longest_)
    done_ = true;
  else
    begin_round(wire);
  return true;
}

void Gathering::begin_lengths(Wire& wire) {
  constexpr int kBytes = sizeof(std::uint64_t);
  round_ = std::make_shared<Round>();
  const std::uint64_t length = mine_.size();
  round_->mine.assign(reinterpret_cast<const char*>(&length), kBytes);
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
  for (const std::uint64_t length : lengths_) {
    round_->gather.offsets.push_back(offset);
    round_->gather.counts.push_back(static_cast<int>(part(length)));
    offset += round_->gather.counts.back();
  }
  begin_ += most;
  operation_ = wire.allgather(round_->ready(round_));
}

void Gathering::collect() {
  if (lengths_.empty()) {
    lengths_.resize(all_.size());
    std::memcpy(lengths_.data(), round_->all.data(), round_->all.size());
    longest_ = *std::ranges::max_element(lengths_);
    return;
  }
  for (std::size_t r = 0; r < all_.size(); ++r)
    all_[r].append(round_->all, static_cast<std::size_t>(round_->gather.offsets[r]),
                   static_cast<std::size_t>(round_->gather.counts[r]));
}

}  // namespace kvring::wire
