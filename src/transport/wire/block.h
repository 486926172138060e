// One block on the wire: its header, then its payload in pieces, all under one tag that follows from the
// block's sequence number. A wire keeps messages of one tag in order, so the pieces need no numbers; and as
// every block has a tag of its own, the header of the next one can be awaited before this one's pieces are.
//
// Pieces are received only once the header has said how long they are. To post them with the header, at the
// length of the buffer, would not be safe: where more arrives, Open MPI 4.1 with single copy (vader, CMA)
// reports the truncation but writes past the end. It would gain little, since a large message only starts to
// flow in a call of the receiver in any case.
//
// The checksum is that of the rank that owns the block: whoever passes it on checks it and sends it along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvring/transport.h"
#include "transport/wire/checksum.h"
#include "transport/wire/wire.h"

namespace kvring::wire {

constexpr int kControlTag = 0;
constexpr int kFirstBlockTag = 1;
// More blocks than ever are under way between two ranks; MPI promises tags up to 32,767.
constexpr std::uint64_t kBlockTags = 16384;

// A payload travels in messages of at most this many bytes: MPI counts in int, and one completed piece is a
// sign of life in a long transfer.
constexpr std::size_t kLargestPiece = std::size_t{1} << 30;

// The other rank of a block, and its place in the order.
struct Link {
  int peer;
  std::uint64_t sequence;
  std::size_t largest_piece = kLargestPiece;
};

// Both kinds of block move in pump() alone, which returns true when something did and is then worth another
// call at once.
class OutgoingBlock {
 public:
  // A block of this rank's own: pump() computes its checksum first.
  OutgoingBlock(const Link& link, const MessageHeader& header, std::span<const std::byte> payload);
  // A block that has yet to arrive.
  explicit OutgoingBlock(const Link& link) : link_(link) {}

  const Link& link() const noexcept { return link_; }
  bool bound() const noexcept { return header_ != nullptr; }
  // Not before its checksum is computed.
  bool about_to_start() const noexcept { return bound() && operations_.empty(); }
  // It has arrived: with this header, whose checksum is right.
  void bind(MessageHeader header, std::span<const std::byte> payload);

  bool pump(Wire& wire);
  bool done() const noexcept { return done_at_.has_value(); }
  std::optional<Clock::time_point> done_at() const noexcept { return done_at_; }
  // Of what will not be completed: true when the wire no longer reads the payload.
  bool retire(Wire& wire);

 private:
  void start(Wire& wire);

  Link link_;
  std::shared_ptr<MessageHeader> header_;  // null: not bound yet
  std::span<const std::byte> payload_;
  std::optional<Checksum> checksum_;   // while it is computed
  std::vector<Operation> operations_;  // the header first
  std::size_t next_ = 0;               // those before are complete
  std::optional<Clock::time_point> done_at_;
};

class IncomingBlock {
 public:
  IncomingBlock(const Link& link, std::span<std::byte> buffer) : link_(link), buffer_(buffer) {}

  const Link& link() const noexcept { return link_; }
  // Whether its payload may come; before, only its header may.
  bool lets_come() const noexcept { return stage_ > Stage::kHeader; }
  // Throws TransportError when what arrives is not what is due: another sequence number, more than the buffer
  // holds, not as much as the header says, or with another checksum.
  bool pump(Wire& wire);
  bool done() const noexcept { return arrived_at_.has_value(); }
  std::optional<Clock::time_point> done_at() const noexcept { return arrived_at_; }
  Transport::Received result() const;  // of a block that is done
  // Gives up: cancel() once, then retire() until it is true: the wire no longer writes to the buffer.
  void cancel(Wire& wire);
  bool retire(Wire& wire);

 private:
  enum class Stage { kNew, kHeader, kPayload, kCheck, kDone };

  void accept_header(Wire& wire, std::size_t bytes);
  void finish_check();

  Link link_;
  std::span<std::byte> buffer_;
  Stage stage_ = Stage::kNew;
  std::shared_ptr<MessageHeader> header_ = std::make_shared<MessageHeader>();
  Operation header_operation_;
  std::vector<Operation> pieces_;
  std::size_t next_ = 0;        // those before are complete
  std::uint64_t received_ = 0;  // bytes
  std::optional<Checksum> checksum_;
  Clock::time_point began_;
  std::optional<Clock::time_point> arrived_at_;
};

}  // namespace kvring::wire
