#include "transport/mpi/control.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/deadline.h"
#include "transport/mpi/block.h"
#include "transport/mpi/check.h"

namespace kvring::mpi {
namespace {

enum class Kind : std::uint64_t { kHeartbeat, kFinished, kFailure };

// On the wire: this, and for a failure its reason.
struct Note {
  Kind kind = Kind::kHeartbeat;
  Account account;
};

// Small enough to leave at once on most networks, long enough for any message of the library.
constexpr std::size_t kLongestReason = 2000;

std::shared_ptr<const std::string> encode(const Note& note, std::string_view reason = {}) {
  std::string bytes(sizeof note, '\0');
  std::memcpy(bytes.data(), &note, sizeof note);
  bytes += reason.substr(0, kLongestReason);
  return std::make_shared<const std::string>(std::move(bytes));
}

bool retire(MPI_Request& request) {
  int flag = 0;
  check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
  return flag != 0;
}

}  // namespace

Control::Control(MPI_Comm comm) : comm_(comm) {
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  heartbeats_.resize(static_cast<std::size_t>(size_));
  finished_.resize(static_cast<std::size_t>(size_));
}

Control::~Control() {
  for (const auto* slots : {&heartbeats_, &notes_})
    for (const Outgoing& slot : *slots)
      if (slot.request != MPI_REQUEST_NULL) keep_forever(slot.bytes);
  for (const Incoming& slot : incoming_) keep_forever(slot.bytes);
}

void Control::send(Outgoing& slot, int to, std::shared_ptr<const std::string> bytes) {
  slot.bytes = std::move(bytes);
  check(MPI_Isend(slot.bytes->data(), static_cast<int>(slot.bytes->size()), MPI_BYTE, to, kControlTag, comm_,
                  &slot.request),
        "MPI_Isend");
}

void Control::send_heartbeat() {
  static const std::shared_ptr<const std::string> kBytes = encode({});
  for (int to = 0; to < size_; ++to) {
    Outgoing& slot = heartbeats_[static_cast<std::size_t>(to)];
    if (to != rank_ && retire(slot.request)) send(slot, to, kBytes);
  }
}

void Control::send_finished(const std::vector<Account>& accounts) {
  for (int to = 0; to < size_; ++to)
    if (to != rank_)
      send(notes_.emplace_back(), to,
           encode({.kind = Kind::kFinished, .account = accounts[static_cast<std::size_t>(to)]}));
}

void Control::send_failure(const std::string& reason) {
  if (failure_) return;  // the first one is the cause, the others its consequences
  failure_ = failure_text(rank_, reason);
  const std::shared_ptr<const std::string> bytes = encode({.kind = Kind::kFailure, .account = {}}, reason);
  for (int to = 0; to < size_; ++to)
    if (to != rank_) send(notes_.emplace_back(), to, bytes);
}

bool Control::poll() {
  sign_of_life_ = false;
  std::erase_if(notes_, [](Outgoing& slot) { return retire(slot.request); });
  accept_arrivals();
  // Receives that are under way are not waited for: with rendezvous, their sender may be computing.
  for (Incoming& slot : incoming_)
    if (retire(slot.request)) read(slot.from, *slot.bytes);
  std::erase_if(incoming_, [](const Incoming& slot) { return slot.request == MPI_REQUEST_NULL; });
  return sign_of_life_;
}

void Control::accept_arrivals() {
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kControlTag, comm_, &found, &message, &status), "MPI_Improbe");
    if (!found) return;
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Incoming& slot = incoming_.emplace_back();
    slot.from = status.MPI_SOURCE;
    slot.bytes = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0');
    check(MPI_Imrecv(slot.bytes->data(), bytes, MPI_BYTE, &message, &slot.request), "MPI_Imrecv");
  }
}

void Control::read(int from, std::string_view bytes) {
  Note note;
  if (bytes.size() < sizeof note) return;
  std::memcpy(&note, bytes.data(), sizeof note);
  sign_of_life_ = true;
  if (note.kind == Kind::kFailure && !failure_) failure_ = failure_text(from, bytes.substr(sizeof note));
  std::optional<Account>& account = finished_[static_cast<std::size_t>(from)];
  if (note.kind == Kind::kFinished && !account) {
    account = note.account;
    ++finished_count_;
  }
}

bool Control::all_left() {
  bool left = notes_.empty();
  for (Outgoing& slot : heartbeats_) left = retire(slot.request) && left;
  return left;
}

}  // namespace kvring::mpi
