#include "transport/wire/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "kvring/error.h"

namespace kvring::wire {
namespace {

// Sent as it lies in memory, between machines of one kind.
static_assert(std::has_unique_object_representations_v<MessageHeader>);

int tag_of(std::uint64_t sequence) { return kFirstBlockTag + static_cast<int>(sequence % kBlockTags); }

std::size_t piece_count(std::uint64_t bytes, std::size_t largest) { return (bytes + largest - 1) / largest; }

template <typename Byte>
std::span<Byte> piece_of(std::size_t i, std::span<Byte> payload, std::size_t largest) {
  const std::size_t begin = i * largest;
  return payload.subspan(begin, std::min(largest, payload.size() - begin));
}

// True when every operation is over.
bool retire_all(Wire& wire, std::vector<Operation>& operations) {
  bool all = true;
  for (Operation& operation : operations) all &= !operation.active() || wire.test(operation).has_value();
  return all;
}

}  // namespace

OutgoingBlock::OutgoingBlock(const Link& link, const MessageHeader& header,
                             std::span<const std::byte> payload)
    : link_(link),
      header_(std::make_shared<MessageHeader>(header)),
      payload_(payload),
      checksum_(std::in_place, payload) {}

void OutgoingBlock::bind(MessageHeader header, std::span<const std::byte> payload) {
  header.step += 1;
  header_ = std::make_shared<MessageHeader>(header);
  payload_ = payload;
}

void OutgoingBlock::start(Wire& wire) {
  header_->sequence = link_.sequence;
  header_->bytes = payload_.size();
  const std::size_t count = piece_count(payload_.size(), link_.largest_piece);
  operations_.resize(count + 1);
  const int tag = tag_of(link_.sequence);
  operations_[0] = wire.send(link_.peer, tag, std::as_bytes(std::span(header_.get(), 1)), header_);
  for (std::size_t i = 0; i < count; ++i)
    operations_[i + 1] = wire.send(link_.peer, tag, piece_of(i, payload_, link_.largest_piece));
}

bool OutgoingBlock::pump(Wire& wire) {
  if (done() || !bound()) return false;
  if (checksum_) {
    if (!checksum_->step()) return true;
    header_->checksum = checksum_->value();
    checksum_.reset();
  }
  const bool starts = operations_.empty();
  if (starts) start(wire);
  const std::size_t before = next_;
  while (next_ < operations_.size() && wire.test(operations_[next_])) ++next_;
  if (next_ == operations_.size()) done_at_ = wire.now();
  return starts || next_ != before;
}

bool OutgoingBlock::retire(Wire& wire) { return retire_all(wire, operations_); }

bool IncomingBlock::pump(Wire& wire) {
  const Stage before = stage_;
  if (stage_ == Stage::kNew) {
    header_operation_ = wire.receive(link_.peer, tag_of(link_.sequence),
                                     std::as_writable_bytes(std::span(header_.get(), 1)), header_);
    stage_ = Stage::kHeader;
  }
  if (stage_ == Stage::kHeader) {
    const std::optional<std::size_t> bytes = wire.test(header_operation_);
    if (!bytes) return before != stage_;
    accept_header(wire, *bytes);
    stage_ = Stage::kPayload;
  }
  const std::size_t had = next_;
  if (stage_ == Stage::kPayload) {
    for (; next_ < pieces_.size(); ++next_) {
      const std::optional<std::size_t> bytes = wire.test(pieces_[next_]);
      if (!bytes) return before != stage_ || next_ != had;
      received_ += *bytes;
    }
    if (received_ != header_->bytes)
      throw TransportError(fmt::format("block {} from rank {}: {} bytes arrived, its header says {}",
                                       link_.sequence, link_.peer, received_, header_->bytes));
    checksum_.emplace(std::span<const std::byte>(buffer_.first(header_->bytes)));
    stage_ = Stage::kCheck;
  }
  if (stage_ != Stage::kCheck) return false;
  if (checksum_->step()) {
    finish_check();
    arrived_at_ = wire.now();
    stage_ = Stage::kDone;
  }
  return true;
}

void IncomingBlock::accept_header(Wire& wire, std::size_t bytes) {
  began_ = wire.now();
  if (bytes != sizeof(MessageHeader))
    throw TransportError(fmt::format("block {} from rank {} begins with {} bytes, a header has {}",
                                     link_.sequence, link_.peer, bytes, sizeof(MessageHeader)));
  if (header_->sequence != link_.sequence)
    throw TransportError(fmt::format("block {} arrived from rank {} where block {} was due",
                                     header_->sequence, link_.peer, link_.sequence));
  if (header_->bytes > buffer_.size())
    throw TransportError(fmt::format("block {} from rank {} has {} bytes, the receive has room for {}",
                                     link_.sequence, link_.peer, header_->bytes, buffer_.size()));
  const std::span<std::byte> payload = buffer_.first(header_->bytes);
  const std::size_t count = piece_count(header_->bytes, link_.largest_piece);
  for (std::size_t i = 0; i < count; ++i)
    pieces_.push_back(
        wire.receive(link_.peer, tag_of(link_.sequence), piece_of(i, payload, link_.largest_piece)));
}

void IncomingBlock::finish_check() {
  const std::uint64_t checksum = checksum_->value();
  checksum_.reset();
  if (checksum == header_->checksum) return;
  throw TransportError(
      fmt::format("block {} from rank {} was damaged on its way: checksum {:016x}, its header says {:016x}",
                  link_.sequence, link_.peer, checksum, header_->checksum));
}

Transport::Received IncomingBlock::result() const {
  return {*header_, buffer_.first(header_->bytes), began_, *arrived_at_};
}

void IncomingBlock::cancel(Wire& wire) {
  if (header_operation_.active()) wire.cancel(header_operation_);
  for (const Operation& piece : pieces_)
    if (piece.active()) wire.cancel(piece);
}

bool IncomingBlock::retire(Wire& wire) {
  const bool header_over = !header_operation_.active() || wire.test(header_operation_).has_value();
  return retire_all(wire, pieces_) && header_over;
}

}  // namespace kvring::wire
