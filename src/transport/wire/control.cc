#include "transport/wire/control.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "transport/wire/block.h"
#include "transport/wire/checksum.h"

namespace kvring::wire {
namespace {

// Small enough to leave at once on most networks, long enough for any message of the library.
constexpr std::size_t kLongestReason = 2000;

std::uint64_t checksum_of_note(std::string_view bytes) {
  return checksum_of(std::as_bytes(std::span(bytes)).subspan(sizeof(std::uint64_t)));
}

}  // namespace

// On the wire: this, and for a failure its text.
struct Control::Note {
  std::uint64_t checksum = 0;  // of all that follows
  Kind kind = Kind::kHeartbeat;
  std::int32_t timeout = 0;
  std::int32_t unheard = -1;
  Status status;
  Account account;
};

Control::Control(Wire& wire) : wire_(wire) {
  heartbeats_.resize(static_cast<std::size_t>(wire.size()));
  notes_.resize(static_cast<std::size_t>(wire.size()));
  peers_.resize(static_cast<std::size_t>(wire.size()));
  forgive_silence();
}

Control::Bytes Control::encode(const Note& note, std::string_view reason) {
  static_assert(std::has_unique_object_representations_v<Note>);
  std::string bytes(sizeof note, '\0');
  std::memcpy(bytes.data(), &note, sizeof note);
  bytes += reason.substr(0, kLongestReason);
  const std::uint64_t checksum = checksum_of_note(bytes);
  std::memcpy(bytes.data(), &checksum, sizeof checksum);
  return std::make_shared<const std::string>(std::move(bytes));
}

Operation Control::send(int to, const Bytes& bytes) {
  return wire_.send(to, kControlTag, std::as_bytes(std::span(*bytes)), bytes);
}

void Control::send_to_all(const Bytes& bytes) {
  for (int to = 0; to < wire_.size(); ++to)
    if (to != wire_.rank()) notes_[static_cast<std::size_t>(to)].push_back(send(to, bytes));
}

bool Control::retire(Operation& operation) {
  return !operation.active() || wire_.test(operation).has_value();
}

void Control::send_heartbeat(const Status& status) {
  const Bytes bytes = encode({.kind = Kind::kHeartbeat, .status = status, .account = {}});
  for (int to = 0; to < wire_.size(); ++to) {
    Operation& last = heartbeats_[static_cast<std::size_t>(to)];
    if (to != wire_.rank() && retire(last)) last = send(to, bytes);
  }
}

void Control::send_finished(const std::vector<Account>& accounts) {
  for (int to = 0; to < wire_.size(); ++to) {
    const auto i = static_cast<std::size_t>(to);
    if (to == wire_.rank()) continue;
    notes_[i].push_back(send(to, encode({.kind = Kind::kFinished, .status = {}, .account = accounts[i]})));
  }
}

void Control::send_failure(const Failure& failure, const Status& status) {
  send_to_all(encode({.kind = Kind::kFailure,
                      .timeout = failure.timeout,
                      .unheard = failure.unheard,
                      .status = status,
                      .account = {}},
                     failure.text));
}

void Control::send_stopped(const Status& status) {
  send_to_all(encode({.kind = Kind::kStopped, .status = status, .account = {}}));
}

bool Control::poll() {
  all_left();
  bool progress = false;
  while (const std::optional<Arrival> arrival = wire_.take(kControlTag))
    progress |= read(arrival->from, arrival->bytes);
  return progress;
}

bool Control::read(int from, std::string_view bytes) {
  Note note;
  if (bytes.size() < sizeof note) return false;
  std::memcpy(&note, bytes.data(), sizeof note);
  // One bit makes a heartbeat the end of a rank. A damaged note is as one that was lost: the next heartbeat
  // says the same, and silence ends what must end.
  if (note.checksum != checksum_of_note(bytes)) return false;
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  peer.heard = wire_.now();
  if (note.kind == Kind::kFinished) {
    peer.finished = note.account;
    return true;
  }
  const bool progress = note.status.progress != peer.status.progress;
  peer.status = note.status;
  if (note.kind != Kind::kHeartbeat) peer.stopped = true;
  if (note.kind == Kind::kFailure && !failure_)
    failure_ = {from, note.timeout != 0, note.unheard, std::string(bytes.substr(sizeof note))};
  return progress;
}

bool Control::all_finished() const noexcept {
  return std::ranges::count_if(peers_, [](const Peer& p) { return p.finished.has_value(); }) + 1 ==
         std::ssize(peers_);
}

bool Control::has_left(int to) {
  const auto i = static_cast<std::size_t>(to);
  std::erase_if(notes_[i], [&](Operation& operation) { return retire(operation); });
  return retire(heartbeats_[i]) && notes_[i].empty();
}

bool Control::all_left() {
  bool left = true;
  for (int to = 0; to < wire_.size(); ++to) left = has_left(to) && left;
  return left;
}

bool Control::all_stopped(Clock::time_point since) {
  for (int r = 0; r < wire_.size(); ++r) {
    const Peer& p = peer(r);
    if (r == wire_.rank() || p.finished) continue;
    if (p.stopped ? !has_left(r) : p.heard >= since) return false;
  }
  return true;
}

void Control::forgive_silence() {
  for (Peer& peer : peers_) peer.heard = wire_.now();
}

}  // namespace kvring::wire
