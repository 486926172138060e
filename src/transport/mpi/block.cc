#include "transport/mpi/block.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <type_traits>

#include "kvring/error.h"
#include "transport/mpi/check.h"

namespace kvring::mpi {
namespace {

// Sent as it lies in memory, between machines of one kind.
static_assert(std::has_unique_object_representations_v<MessageHeader>);
constexpr int kHeaderBytes = sizeof(MessageHeader);

int tag_of(std::uint64_t sequence) { return kFirstBlockTag + static_cast<int>(sequence % kBlockTags); }

std::size_t piece_count(std::uint64_t bytes, std::size_t largest) { return (bytes + largest - 1) / largest; }

// The place and length of piece i of `bytes`.
struct Piece {
  std::size_t begin;
  int bytes;
};
Piece piece_of(std::size_t i, std::uint64_t bytes, std::size_t largest) {
  const std::size_t begin = i * largest;
  return {begin, static_cast<int>(std::min<std::uint64_t>(largest, bytes - begin))};
}

// True when the request is complete. MPI_Test, not MPI_Testsome: MPICH 4.0 reports errors of the latter to
// the handler of MPI_COMM_WORLD, which by default ends the program.
bool test(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE) {
  int flag = 0;
  check(MPI_Test(&request, &flag, status), "MPI_Test");
  return flag != 0;
}

int byte_count(const MPI_Status& status) {
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  return bytes;
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

OutgoingBlock::OutgoingBlock(const Link& link, MessageHeader header, std::span<const std::byte> payload)
    : link_(link) {
  header.sequence = link.sequence;
  header.bytes = payload.size();
  header.checksum = checksum_of(payload);
  header_ = std::make_shared<MessageHeader>(header);
  const std::size_t count = piece_count(payload.size(), link.largest_piece);
  pieces_.assign(count + 1, MPI_REQUEST_NULL);
  const int tag = tag_of(link.sequence);
  check(MPI_Isend(header_.get(), kHeaderBytes, MPI_BYTE, link.peer, tag, link.comm, &pieces_[0]),
        "MPI_Isend");
  for (std::size_t i = 0; i < count; ++i) {
    const Piece piece = piece_of(i, payload.size(), link.largest_piece);
    check(MPI_Isend(payload.data() + piece.begin, piece.bytes, MPI_BYTE, link.peer, tag, link.comm,
                    &pieces_[i + 1]),
          "MPI_Isend");
  }
}

OutgoingBlock::~OutgoingBlock() {
  if (!done()) keep_forever(header_);
}

bool OutgoingBlock::pump() {
  const std::size_t before = next_;
  while (!done() && test(pieces_[next_])) ++next_;
  return next_ != before;
}

IncomingBlock::IncomingBlock(const Link& link, std::span<std::byte> buffer)
    : link_(link), buffer_(buffer), header_(std::make_shared<MessageHeader>()) {
  const int tag = tag_of(link.sequence);
  check(MPI_Irecv(header_.get(), kHeaderBytes, MPI_BYTE, link.peer, tag, link.comm, &header_request_),
        "MPI_Irecv");
}

IncomingBlock::~IncomingBlock() {
  if (!idle()) keep_forever(header_);
}

bool IncomingBlock::pump() {
  if (done()) return false;
  MPI_Status status;
  const bool header_comes = header_request_ != MPI_REQUEST_NULL;
  if (header_comes) {
    if (!test(header_request_, &status)) return false;
    accept_header(byte_count(status));
  }
  const std::size_t before = next_;
  for (; next_ < pieces_.size() && test(pieces_[next_], &status); ++next_)
    received_ += static_cast<std::uint64_t>(byte_count(status));
  if (done() && received_ != header_->bytes)
    throw TransportError(fmt::format("block {} from rank {}: {} bytes arrived, its header says {}",
                                     link_.sequence, link_.peer, received_, header_->bytes));
  return header_comes || next_ != before;
}

void IncomingBlock::accept_header(int bytes) {
  if (bytes != kHeaderBytes)
    throw TransportError(fmt::format("block {} from rank {} begins with {} bytes, a header has {}",
                                     link_.sequence, link_.peer, bytes, kHeaderBytes));
  if (header_->sequence != link_.sequence)
    throw TransportError(fmt::format("block {} arrived from rank {} where block {} was due",
                                     header_->sequence, link_.peer, link_.sequence));
  if (header_->bytes > buffer_.size())
    throw TransportError(fmt::format("block {} from rank {} has {} bytes, the receive has room for {}",
                                     link_.sequence, link_.peer, header_->bytes, buffer_.size()));
  arrived_ = true;
  const std::size_t count = piece_count(header_->bytes, link_.largest_piece);
  for (std::size_t i = 0; i < count; ++i) {
    const Piece piece = piece_of(i, header_->bytes, link_.largest_piece);
    MPI_Request& request = pieces_.emplace_back(MPI_REQUEST_NULL);
    check(MPI_Irecv(buffer_.data() + piece.begin, piece.bytes, MPI_BYTE, link_.peer, tag_of(link_.sequence),
                    link_.comm, &request),
          "MPI_Irecv");
  }
}

Transport::Received IncomingBlock::result() const {
  const std::span<const std::byte> payload = buffer_.first(header_->bytes);
  const std::uint64_t checksum = checksum_of(payload);
  if (checksum != header_->checksum)
    throw TransportError(
        fmt::format("block {} from rank {} was damaged on its way: checksum {:016x}, its header says {:016x}",
                    link_.sequence, link_.peer, checksum, header_->checksum));
  return {*header_, payload};
}

void IncomingBlock::cancel() {
  if (header_request_ != MPI_REQUEST_NULL) MPI_Cancel(&header_request_);
  for (MPI_Request& piece : pieces_)
    if (piece != MPI_REQUEST_NULL) MPI_Cancel(&piece);
}

void IncomingBlock::retire() {
  test(header_request_);
  for (MPI_Request& piece : pieces_) test(piece);
}

bool IncomingBlock::idle() const noexcept {
  return header_request_ == MPI_REQUEST_NULL &&
         std::ranges::all_of(pieces_, [](MPI_Request piece) { return piece == MPI_REQUEST_NULL; });
}

}  // namespace kvring::mpi
