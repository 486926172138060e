#include "transport/wire/control.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/wire/block.h"

namespace kvring::wire {
namespace {

// Small enough to leave at once on most networks, long enough for any message of the library.
constexpr std::size_t kLongestReason = 2000;

}  // namespace

// On the wire: this, and for a failure its text.
struct Control::Note {
  Kind kind = Kind::kHeartbeat;
  std::int32_t timeout = 0;
  std::int32_t unheard = -1;
  Status status;
  Account account;
};

Control::Control(Wire& wire) : wire_(wire) {
  heartbeats_.resize(static_cast<std::size_t>(wire.size()));
  peers_.resize(static_cast<std::size_t>(wire.size()));
  forgive_silence();
}

Control::Bytes Control::encode(const Note& note, std::string_view reason) {
  std::string bytes(sizeof note, '\0');
  std::memcpy(bytes.data(), &note, sizeof note);
  bytes += reason.substr(0, kLongestReason);
  return std::make_shared<const std::string>(std::move(bytes));
}

Operation Control::send(int to, const Bytes& bytes) {
  return wire_.send(to, kControlTag, std::as_bytes(std::span(*bytes)), bytes);
}

void Control::send_to_all(const Bytes& bytes) {
  for (int to = 0; to < wire_.size(); ++to)
    if (to != wire_.rank()) notes_.push_back(send(to, bytes));
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
  for (int to = 0; to < wire_.size(); ++to)
    if (to != wire_.rank())
      notes_.push_back(send(to, encode({.kind = Kind::kFinished,
                                        .status = {},
                                        .account = accounts[static_cast<std::size_t>(to)]})));
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
  std::erase_if(notes_, [&](Operation& operation) { return retire(operation); });
  bool progress = false;
  while (const std::optional<Arrival> arrival = wire_.take(kControlTag))
    progress |= read(arrival->from, arrival->bytes);
  return progress;
}

bool Control::read(int from, std::string_view bytes) {
  Note note;
  if (bytes.size() < sizeof note) return false;
  std::memcpy(&note, bytes.data(), sizeof note);
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

bool Control::all_stopped() const noexcept { return all_stopped_but_silent_since(Clock::time_point::min()); }

bool Control::all_stopped_but_silent_since(Clock::time_point time) const noexcept {
  for (int r = 0; r < wire_.size(); ++r) {
    const Peer& p = peer(r);
    if (r != wire_.rank() && !p.stopped && !p.finished && p.heard >= time) return false;
  }
  return true;
}

bool Control::all_left() {
  bool left = notes_.empty();
  for (Operation& heartbeat : heartbeats_) left = retire(heartbeat) && left;
  return left;
}

void Control::forgive_silence() {
  for (Peer& peer : peers_) peer.heard = wire_.now();
}

}  // namespace kvring::wire
