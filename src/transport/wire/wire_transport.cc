#include "transport/wire/wire_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/wire/verdict.h"

namespace kvring::wire {
namespace {

// How long an end that stopped waits for the answers of the others and for what is under way: so that memory
// is no longer in use, and so that those that do not answer can be named.
constexpr Clock::duration kGrace = std::chrono::milliseconds(500);

constexpr Clock::duration kHopeless = std::chrono::milliseconds(100);

// Pauses between pumps. With a thread that computes beside, each pump steals a little of it, and the buffers
// of a socket must not run dry meanwhile. Where somebody waits: a few tries at once, then the same pauses,
// because other ranks may compute on this core. Among ranks of one host they are shorter, or transfers
// through shared memory that move a few fragments per call would starve: between two ranks on one node
// without single copy (btl_vader_single_copy_mechanism none), 16 MiB blocks passed at 0.2 GB/s with naps of
// 50 us, at 0.06 GB/s with naps of 1 ms.
constexpr Clock::duration kBesideWork = std::chrono::microseconds(300);
constexpr Clock::duration kWhileWaitingForNeighbours = std::chrono::microseconds(50);
constexpr Clock::duration kIdle = std::chrono::milliseconds(5);
constexpr int kTriesAtOnce = 64;

}  // namespace

WireTransport::WireTransport(std::unique_ptr<Wire> wire, const WireOptions& options)
    : wire_(std::move(wire)),
      clock_(options.deadline_s, wire_->now()),
      largest_piece_(options.largest_piece),
      while_waiting_(wire_->ranks_on_this_host() > 1 ? kWhileWaitingForNeighbours : kBesideWork),
      control_(*wire_),
      accounts_(static_cast<std::size_t>(wire_->size())),
      last_pump_(wire_->now()),
      last_heartbeat_(wire_->now()) {
  if (options.thread && size() > 1) thread_ = std::thread([this] { run(); });
}

WireTransport::~WireTransport() {
  Lock lock(mutex_);
  const bool together = close_together(lock);
  if (!together) {
    stop(ErrorCode::kTransport, "its end was destroyed", false);
    while (state_ != State::kStopped) sleep(lock, wire_->now() + kGrace);
  }
  lock.unlock();
  end_thread();
  try {
    if (together) wire_->close();
  } catch (const Error&) {
    // A destructor has nobody to tell.
  }
}

void WireTransport::end_thread() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    quit_ = true;
  }
  work_.notify_all();
  thread_.join();
}

OutgoingBlock& WireTransport::send_of(Request request) {
  const auto found = sends_.find(request);
  if (found == sends_.end()) throw Internal(fmt::format("no send has request {}", request));
  return found->second.block;
}

IncomingBlock& WireTransport::receive_of(Request request) {
  const auto found = receives_.find(request);
  if (found == receives_.end()) throw Internal(fmt::format("no receive has request {}", request));
  return found->second;
}

Transport::Request WireTransport::post_send(int to, const MessageHeader& header,
                                            std::span<const std::byte> payload) {
  check_peer(to, rank(), size());
  const Lock lock(mutex_);
  const Link link{to, accounts_[static_cast<std::size_t>(to)].sent++, largest_piece_};
  sends_.try_emplace(next_, Outgoing{OutgoingBlock(link, header, payload), std::nullopt});
  wake();
  return next_++;
}

Transport::Request WireTransport::post_forward(Request receive, int to) {
  check_peer(to, rank(), size());
  const Lock lock(mutex_);
  receive_of(receive);
  const Link link{to, accounts_[static_cast<std::size_t>(to)].sent++, largest_piece_};
  bind_if_there(sends_.try_emplace(next_, Outgoing{OutgoingBlock(link), receive}).first->second);
  wake();
  return next_++;
}

Transport::Request WireTransport::post_receive(int from, std::span<std::byte> buffer) {
  check_peer(from, rank(), size());
  const Lock lock(mutex_);
  const Link link{from, accounts_[static_cast<std::size_t>(from)].posted++, largest_piece_};
  receives_.try_emplace(next_, link, buffer);
  wake();
  return next_++;
}

Transport::Received WireTransport::wait_receive(Request receive, const WaitLabel& what) {
  Lock lock(mutex_);
  const IncomingBlock& block = receive_of(receive);
  const int peer = block.link().peer;
  const auto poll = [&] {
    if (block.done()) return Outcome::kDone;
    const std::optional<Account>& account = control_.peer(peer).finished;
    return account && block.link().sequence >= account->sent ? Outcome::kNever : Outcome::kPending;
  };
  wait(lock, {.what = what,
              .poll = poll,
              .peers = [&] { return from_rank(peer); },
              .finished = [&] { return peer; },
              .on = peer});
  return block.result();
}

void WireTransport::release(Request receive) {
  const Lock lock(mutex_);
  if (!receive_of(receive).done())
    throw Internal(fmt::format("rank {} releases receive {} before it waited for it", rank(), receive));
  receives_.erase(receive);
}

void WireTransport::wait_send(Request send, const WaitLabel& what) {
  Lock lock(mutex_);
  const OutgoingBlock& block = send_of(send);
  const int peer = block.link().peer;
  const auto poll = [&] {
    if (block.done()) return Outcome::kDone;
    const std::optional<Account>& account = control_.peer(peer).finished;
    return account && block.link().sequence >= account->posted ? Outcome::kNever : Outcome::kPending;
  };
  wait(lock, {.what = what,
              .poll = poll,
              .peers = [&] { return to_rank(peer); },
              .finished = [&] { return peer; },
              .on = peer});
  sends_.erase(send);
}

std::optional<Clock::time_point> WireTransport::completed(Request request) const {
  const Lock lock(mutex_);
  if (const auto send = sends_.find(request); send != sends_.end()) return send->second.block.done_at();
  if (const auto receive = receives_.find(request); receive != receives_.end())
    return receive->second.done_at();
  throw Internal(fmt::format("rank {} has no request {}", rank(), request));
}

void WireTransport::progress() {
  progress_.fetch_add(1, std::memory_order_relaxed);
  clock_.note(wire_->now());
  if (!thread_.joinable()) {
    const Lock lock(mutex_);
    pump();
  }
  if (!broken_) return;
  Lock lock(mutex_);
  while (state_ != State::kStopped) sleep(lock, wire_->now() + kGrace);
  throw_failure();
}

std::vector<std::string> WireTransport::allgather(const std::string& mine, const WaitLabel& what) {
  Lock lock(mutex_);
  if (state_ == State::kRunning) {
    ++collectives_;
    gathering_.emplace(mine, size(), largest_piece_);
    wake();
  }
  // A rank that finished without beginning this collective; -1: none.
  const auto finished_early = [&] {
    for (int r = 0; r < size(); ++r) {
      const std::optional<Account>& account = control_.peer(r).finished;
      if (account && account->collectives < collectives_) return r;
    }
    return -1;
  };
  const auto poll = [&] {
    if (gathering_->done()) return Outcome::kDone;
    return finished_early() < 0 ? Outcome::kPending : Outcome::kNever;
  };
  wait(lock, {.what = what,
              .poll = poll,
              .peers = [] { return std::string("from the other ranks"); },
              .finished = finished_early});
  std::vector<std::string> all = gathering_->take();
  gathering_.reset();
  return all;
}

void WireTransport::wait(Lock& lock, const Waiting& waiting) {
  const Clock::time_point began = wire_->now();
  waiting_ = &waiting;
  waiting_since_ = began;
  wake();  // it may pump without sparing the computation now
  for (;;) {
    if (state_ == State::kRunning) {
      const Outcome outcome = waiting.poll();
      if (outcome == Outcome::kDone) break;
      const Clock::time_point now = wire_->now();
      if (outcome == Outcome::kNever)
        stop(ErrorCode::kTransport, finished_text(rank(), waiting.what, waiting.peers(), waiting.finished()),
             true);
      else if (last_pump_ >= clock_.expiry(began)) {
        // It has listened that long: where it was stopped itself, what came meanwhile has counted.
        stop(ErrorCode::kTimeout, timeout_text(rank(), now - began, waiting.what, waiting.peers()), true);
        // It may answer again before anybody is blamed, but it was away: five heartbeats did not come.
        failure_->unheard = silent_rank(now, clock_.deadline() / 2);
      }
    }
    if (state_ == State::kStopped) {
      waiting_ = nullptr;
      throw_failure();
    }
    sleep(lock, clock_.expiry(began));
  }
  waiting_ = nullptr;
  clock_.note(wire_->now());
}

// Until something may have changed.
void WireTransport::sleep(Lock& lock, Clock::time_point until) {
  if (thread_.joinable()) {
    changed_.wait_until(lock, std::min(until, wire_->now() + kGrace));
    return;
  }
  if (!pump()) wire_->nap(while_waiting_);
}

void WireTransport::wake() { work_.notify_one(); }

void WireTransport::run() {
  Lock lock(mutex_);
  for (int tries = 0; !quit_;) {
    if (pump()) {
      tries = 0;
      changed_.notify_all();
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    // Whoever waits is woken by what changed alone: ranks that share a core have better use for it.
    const bool eager = waiting_ || state_ == State::kStopping || state_ == State::kClosing;
    if (eager && tries < kTriesAtOnce) {
      ++tries;
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else {
      work_.wait_for(lock, eager ? while_waiting_ : busy() ? kBesideWork : kIdle);
    }
  }
}

// Whether anything is under way that this rank's calls would move.
bool WireTransport::busy() const noexcept {
  if (gathering_ && !gathering_->done()) return true;
  return std::ranges::any_of(sends_, [](const auto& entry) { return !entry.second.block.done(); }) ||
         std::ranges::any_of(receives_, [](const auto& entry) { return !entry.second.done(); });
}

// One round of everything that is under way. True when something moved, and another round at once may pay.
bool WireTransport::pump() noexcept {
  if (state_ == State::kStopped) return false;
  try {
    const Calls calls(*wire_);
    if (state_ == State::kStopping) {
      pump_stopping();
      return false;
    }
    return pump_running();
  } catch (const std::exception& error) {
    stop(ErrorCode::kTransport, error.what(), true);
    if (wire_->now() >= give_up_) settle();
    return true;
  }
}

bool WireTransport::pump_running() {
  const Clock::time_point now = wire_->now();
  if (now - last_pump_ > clock_.deadline() / 4) control_.forgive_silence();
  last_pump_ = now;
  bool moved = false;
  for (auto& [request, block] : receives_)
    if (block.lets_come() || !about_to_send(block.link().peer)) moved |= block.pump(*wire_);
  for (auto& [request, send] : sends_) {
    bind_if_there(send);
    moved |= send.block.pump(*wire_);
  }
  if (gathering_) moved |= gathering_->pump(*wire_);
  if (moved) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    clock_.note(wire_->now());
  }
  // A sign of life of others is not passed on: they tell every rank themselves.
  if (control_.poll()) {
    clock_.note(wire_->now());
    changed_.notify_all();  // another rank may have finished
  }
  if (state_ == State::kClosing) pump_closing();
  pump_heartbeat();
  if (control_.failure())
    hear_failure();
  else
    check_silence(now);
  return moved;
}

// What comes from there waits for that. The word that a block may come would otherwise start a transfer
// behind which the other's word for this rank's block queues up, on their one connection: blocks that could
// pass each other would take turns.
bool WireTransport::about_to_send(int peer) const {
  return std::ranges::any_of(sends_, [&](const auto& entry) {
    return entry.second.block.link().peer == peer && entry.second.block.about_to_start();
  });
}

void WireTransport::pump_heartbeat() {
  const Clock::time_point now = wire_->now();
  if (now - last_heartbeat_ < clock_.deadline() / 10) return;
  last_heartbeat_ = now;
  control_.send_heartbeat(status());
}

// Before the receive that brings it can be released.
void WireTransport::bind_if_there(Outgoing& send) {
  if (!send.source) return;
  const IncomingBlock& source = receive_of(*send.source);
  if (!source.done()) return;
  send.block.bind(source.result().header, source.result().payload);
  send.source.reset();
}

void WireTransport::pump_closing() {
  if (!said_finished_) {
    said_finished_ = true;
    for (Account& account : accounts_) account.collectives = collectives_;
    control_.send_finished(accounts_);
  }
  closed_ = control_.all_finished() && control_.all_left();
  if (closed_) changed_.notify_all();
}

Status WireTransport::status() const noexcept {
  return {progress_.load(std::memory_order_relaxed), waiting_ ? 1 : 0, waiting_ ? waiting_->on : -1};
}

// The first rank of which nothing was heard for that long; -1: none.
int WireTransport::silent_rank(Clock::time_point now, Clock::duration silence) const {
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = control_.peer(r);
    if (r != rank() && !peer.finished && now - peer.heard >= silence) return r;
  }
  return -1;
}

void WireTransport::check_silence(Clock::time_point now) {
  const int silent = silent_rank(now, clock_.deadline());
  if (silent < 0) return;
  const std::string who =
      waiting_ ? timeout_text(rank(), now - waiting_since_, waiting_->what, waiting_->peers()) + ", and"
               : fmt::format("rank {}", rank());
  stop(ErrorCode::kTimeout,
       fmt::format("{} has heard nothing of rank {} for {:.1f} s", who, silent,
                   std::chrono::duration<double>(now - control_.peer(silent).heard).count()),
       true);
  failure_->unheard = silent;
}

// Another rank told of its failure.
void WireTransport::hear_failure() {
  if (failure_) return;
  failure_ = control_.failure();
  stop(ErrorCode::kTransport, {}, false);
}

// The first error of this end. With `own_words` the next wait throws just the text, otherwise what the others
// hear of it.
void WireTransport::stop(ErrorCode code, const std::string& text, bool own_words) {
  if (state_ == State::kStopping || state_ == State::kStopped) return;
  state_ = State::kStopping;
  stopped_status_ = status();
  asked_ = wire_->now();
  give_up_ = asked_ + std::min(kGrace, clock_.deadline());
  if (!failure_) failure_ = {rank(), code == ErrorCode::kTimeout, -1, failure_text(rank(), text)};
  failure_code_ = code;
  if (own_words) own_words_ = text;
  broken_ = true;
  wake();
}

void WireTransport::pump_stopping() {
  const auto try_to = [](auto&& function) {
    try {
      return function();
    } catch (const std::exception&) {
      return false;  // errors no longer matter here, only that things come to their end
    }
  };
  if (!told_) {
    told_ = true;
    try_to([&] {
      if (failure_->rank == rank())
        control_.send_failure(*failure_, stopped_status_);
      else
        control_.send_stopped(stopped_status_);
      return true;
    });
    for (auto& entry : receives_) try_to([&] { return entry.second.cancel(*wire_), true; });
  }
  bool over = try_to([&] {
    control_.poll();
    return control_.all_stopped();
  });
  for (auto& entry : sends_) over &= try_to([&] { return entry.second.block.retire(*wire_); });
  for (auto& entry : receives_) over &= try_to([&] { return entry.second.retire(*wire_); });
  const Clock::time_point now = wire_->now();
  // Whoever has missed two heartbeats and does not answer to this either is gone: a launcher that is about to
  // kill all leaves little time to say so.
  const bool hopeless = now >= asked_ + kHopeless &&
                        try_to([&] { return control_.all_stopped(asked_ - clock_.deadline() / 4); });
  if (over || hopeless || now >= give_up_) settle();
}

void WireTransport::settle() {
  if (state_ == State::kStopped) return;
  std::vector<Peer> peers;
  for (int r = 0; r < size(); ++r) peers.push_back(control_.peer(r));
  verdict_ = find_culprit({.rank = rank(),
                           .now = wire_->now(),
                           .failure = *failure_,
                           .status = stopped_status_,
                           .peers = std::move(peers)});
  state_ = State::kStopped;
  changed_.notify_all();
}

void WireTransport::throw_failure() {
  const std::string words = std::exchange(own_words_, {});
  if (words.empty()) throw TransportError(failure_->text);
  if (failure_code_ == ErrorCode::kTimeout) throw Timeout(words);
  throw TransportError(words);
}

void WireTransport::fail(const std::string& reason) noexcept {
  try {
    Lock lock(mutex_);
    stop(ErrorCode::kInternal, reason, false);
    // Inline, only the thread that uses this end may touch the wire; it goes on in its next call.
    if (!thread_.joinable() && std::this_thread::get_id() != owner_) return;
    while (state_ != State::kStopped) sleep(lock, give_up_);
  } catch (const std::exception&) {
    // Without memory for the message the others end at their deadline.
  }
}

Verdict WireTransport::verdict() const {
  const Lock lock(mutex_);
  if (verdict_) return *verdict_;
  if (failure_) return {failure_->rank, 0, failure_->text, {}};
  return {};
}

// A rank that finished says so, and stays until all have: until then heartbeats may be on their way to it.
bool WireTransport::close_together(Lock& lock) {
  if (state_ != State::kRunning) return false;
  const bool idle = !busy();
  const Clock::time_point began = wire_->now();
  state_ = State::kClosing;
  wake();
  while (state_ == State::kClosing && !closed_) {
    if (wire_->now() >= clock_.expiry(began)) return false;
    sleep(lock, clock_.expiry(began));
  }
  return closed_ && idle;
}

}  // namespace kvring::wire
