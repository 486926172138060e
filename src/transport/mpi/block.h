// One block on the wire: its header, then its payload in pieces, all under one tag that follows from the
// block's sequence number. MPI keeps messages of one tag in order, so the pieces need no numbers; and as
// every block has a tag of its own, the header of the next one can be awaited before this one's pieces are.
//
// Pieces are received only once the header has said how long they are. To post them with the header, at the
// length of the buffer, would not be safe: where more arrives, Open MPI 4.1 with single copy (vader, CMA)
// reports the truncation but writes past the end. It would gain little, since a large message only starts to
// flow in a call of the receiver in any case.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvring/transport.h"

namespace kvring::mpi {

constexpr int kControlTag = 0;
constexpr int kFirstBlockTag = 1;
// More blocks than ever are under way between two ranks; MPI promises tags up to 32,767.
constexpr std::uint64_t kBlockTags = 16384;

// A payload travels in messages of at most this many bytes: MPI counts in int, and one completed piece is a
// sign of life in a long transfer.
constexpr std::size_t kLargestPiece = std::size_t{1} << 30;

// The other rank of a block, and its place in the order.
struct Link {
  MPI_Comm comm;
  int peer;
  std::uint64_t sequence;
  std::size_t largest_piece = kLargestPiece;
};

std::uint64_t checksum_of(std::span<const std::byte> payload);  // XXH3

class OutgoingBlock {
 public:
  // Fills in sequence, bytes and checksum of the header, and starts to send.
  OutgoingBlock(const Link& link, MessageHeader header, std::span<const std::byte> payload);
  ~OutgoingBlock();
  OutgoingBlock(const OutgoingBlock&) = delete;
  OutgoingBlock& operator=(const OutgoingBlock&) = delete;

  const Link& link() const noexcept { return link_; }
  bool pump();  // true when something moved
  bool done() const noexcept { return next_ == pieces_.size(); }

 private:
  Link link_;
  std::shared_ptr<MessageHeader> header_;
  std::vector<MPI_Request> pieces_;  // the header first
  std::size_t next_ = 0;             // those before are complete
};

class IncomingBlock {
 public:
  // Posts the receive of the header.
  IncomingBlock(const Link& link, std::span<std::byte> buffer);
  ~IncomingBlock();
  IncomingBlock(const IncomingBlock&) = delete;
  IncomingBlock& operator=(const IncomingBlock&) = delete;

  const Link& link() const noexcept { return link_; }
  // True when something moved. Throws TransportError when what arrives is not what is due: another sequence
  // number, more than the buffer holds, or not as much as the header says.
  bool pump();
  bool done() const noexcept { return arrived_ && next_ == pieces_.size(); }
  // Of a block that is done. Throws TransportError when the checksum is wrong.
  Transport::Received result() const;
  // Gives up: cancel() once, then retire() until idle(), from when on MPI no longer writes to the buffer.
  void cancel();
  void retire();
  bool idle() const noexcept;

 private:
  void accept_header(int bytes);

  Link link_;
  std::span<std::byte> buffer_;
  std::shared_ptr<MessageHeader> header_;
  MPI_Request header_request_ = MPI_REQUEST_NULL;
  bool arrived_ = false;  // the header, and it is right
  std::vector<MPI_Request> pieces_;
  std::size_t next_ = 0;        // those before are complete
  std::uint64_t received_ = 0;  // bytes
};

}  // namespace kvring::mpi
