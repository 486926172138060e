#include "transport/mpi/mpi_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kvring/error.h"
#include "kvring/mpi.h"
#include "transport/mpi/check.h"

namespace kvring {
namespace mpi {
namespace {

// How long an end that failed tries to complete what is under way, so that peers hear of the failure and MPI
// no longer touches memory that is about to be freed.
constexpr ProgressClock::Clock::duration kGrace = std::chrono::seconds(1);

// MPI has no blocking wait with a deadline: look again at once a few times, then between naps, so that ranks
// that share a core leave it to those that compute. Longer naps would starve transfers that MPI moves a few
// fragments per call: between two ranks on one node without single copy (btl_vader_single_copy_mechanism
// none), 16 MiB blocks passed at 0.2 GB/s with naps of 50 us, at 0.06 GB/s with naps of 1 ms.
class Backoff {
 public:
  void pause() {
    if (tries_ < kYields) {
      ++tries_;
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  static constexpr int kYields = 64;
  static constexpr std::chrono::microseconds kNap{50};
  int tries_ = 0;
};

void require_mpi(MPI_Comm communicator) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized)
    throw InvalidArgument("the MPI transport needs MPI: call MPI_Init_thread first, MPI_Finalize last");
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&provided), "MPI_Query_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw InvalidArgument(
        "MPI was initialised with MPI_THREAD_SINGLE, but a rank computes with threads: call MPI_Init_thread "
        "with MPI_THREAD_FUNNELED or more");
  if (communicator == MPI_COMM_NULL)
    throw InvalidArgument("MPI_COMM_NULL has no ranks: give a communicator such as MPI_COMM_WORLD");
}

template <typename Map>
auto& find(Map& map, Transport::Request request, const char* kind) {
  const auto found = map.find(request);
  if (found == map.end()) throw Internal(fmt::format("no {} has request {}", kind, request));
  return found->second;
}

int count_ranks_on_this_host(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int count = 1;
  check(MPI_Comm_size(host, &count), "MPI_Comm_size");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return count;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator, double deadline_s, std::size_t largest_piece)
    : clock_(deadline_s), largest_piece_(largest_piece) {
  require_mpi(communicator);
  check(MPI_Comm_dup(communicator, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  ranks_on_this_host_ = count_ranks_on_this_host(comm_);
  control_.emplace(comm_);
  accounts_.resize(static_cast<std::size_t>(size_));
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  try {
    close();
  } catch (const std::exception&) {
    // A destructor has nobody to tell.
  }
}

Transport::Request MpiTransport::post_send(int to, const MessageHeader& header,
                                           std::span<const std::byte> payload) {
  check_peer(to, rank_, size_);
  const std::uint64_t sequence = accounts_[static_cast<std::size_t>(to)].sent++;
  sends_.try_emplace(next_, Link{comm_, to, sequence, largest_piece_}, header, payload);
  return next_++;
}

Transport::Request MpiTransport::post_receive(int from, std::span<std::byte> buffer) {
  check_peer(from, rank_, size_);
  const std::uint64_t sequence = accounts_[static_cast<std::size_t>(from)].posted++;
  receives_.try_emplace(next_, Link{comm_, from, sequence, largest_piece_}, buffer);
  return next_++;
}

Transport::Received MpiTransport::wait_receive(Request receive, const WaitLabel& what) {
  IncomingBlock& block = find(receives_, receive, "receive");
  const auto poll = [&] {
    if (block.done()) return Outcome::kDone;
    const std::optional<Account>& account = control_->finished(block.link().peer);
    return account && block.link().sequence >= account->sent ? Outcome::kNever : Outcome::kPending;
  };
  return guarded([&] {
    wait({.what = what,
          .poll = poll,
          .peers = [&] { return from_rank(block.link().peer); },
          .finished = [&] { return block.link().peer; }});
    return block.result();
  });
}

void MpiTransport::release(Request receive) {
  if (!find(receives_, receive, "receive").idle())
    throw Internal(fmt::format("rank {} releases receive {} before it waited for it", rank_, receive));
  receives_.erase(receive);
}

void MpiTransport::wait_send(Request send, const WaitLabel& what) {
  OutgoingBlock& block = find(sends_, send, "send");
  const auto poll = [&] {
    if (block.done()) return Outcome::kDone;
    const std::optional<Account>& account = control_->finished(block.link().peer);
    return account && block.link().sequence >= account->posted ? Outcome::kNever : Outcome::kPending;
  };
  guarded([&] {
    wait({.what = what,
          .poll = poll,
          .peers = [&] { return to_rank(block.link().peer); },
          .finished = [&] { return block.link().peer; }});
  });
  sends_.erase(send);
}

bool MpiTransport::ready(Request request) {
  try_pump(/*computing=*/false);
  const auto receive = receives_.find(request);
  const bool done =
      receive != receives_.end() ? receive->second.done() : find(sends_, request, "send").done();
  return done || stopped_ || control_->failure();
}

void MpiTransport::progress() { try_pump(/*computing=*/true); }

// The clock of this rank and, now and then, of the others.
void MpiTransport::show_life() {
  clock_.note();
  const Clock::time_point now = Clock::now();
  if (now - last_heartbeat_ < clock_.deadline() / 10) return;
  last_heartbeat_ = now;
  control_->send_heartbeat();
}

void MpiTransport::pump() {
  bool moved = false;
  for (auto& [request, block] : sends_) moved |= block.pump();
  for (auto& [request, block] : receives_) moved |= block.pump();
  if (moved) show_life();
  // A sign of life of others is not passed on: they tell every rank themselves.
  if (control_->poll()) clock_.note();
  announce_for_other_thread();
}

void MpiTransport::announce_for_other_thread() {
  if (!other_thread_failed_) return;
  std::string reason;
  {
    const std::lock_guard<std::mutex> lock(other_thread_mutex_);
    reason = *other_thread_failure_;
  }
  announce(reason);
}

void MpiTransport::try_pump(bool computing) noexcept {
  if (stopped_) return;
  const ReturnErrors return_errors;
  try {
    if (computing) show_life();
    pump();
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

void MpiTransport::throw_if_failed() const {
  if (control_->failure()) throw TransportError(*control_->failure());
  if (stopped_) throw TransportError(fmt::format("rank {} had stopped: {}", rank_, *stopped_));
}

void MpiTransport::wait(const Wait& wait) {
  const ReturnErrors return_errors;
  const Clock::time_point began = Clock::now();
  for (Backoff backoff;; backoff.pause()) {
    throw_if_failed();
    pump();
    throw_if_failed();
    const Outcome outcome = wait.poll();
    if (outcome == Outcome::kDone) break;
    if (outcome == Outcome::kNever)
      throw TransportError(finished_text(rank_, wait.what, wait.peers(), wait.finished()));
    const Clock::time_point now = Clock::now();
    if (now >= clock_.expiry(began)) throw Timeout(timeout_text(rank_, now - began, wait.what, wait.peers()));
  }
  show_life();
}

void MpiTransport::fail(const std::string& reason) noexcept {
  try {
    if (std::this_thread::get_id() == owner_) {
      announce(reason);
      return;
    }
    // Only the owner may call MPI: it passes this on in its next call.
    const std::lock_guard<std::mutex> lock(other_thread_mutex_);
    if (!other_thread_failure_) other_thread_failure_ = reason;
    other_thread_failed_ = true;
  } catch (const std::exception&) {
    // Without memory for the message the others end at their deadline.
  }
}

void MpiTransport::announce(const std::string& reason) {
  if (control_->failure()) return;
  control_->send_failure(reason);
  if (stopped_)
    drain();
  else
    stop(reason);
}

// After this the end only closes: no buffer of the caller is in use, as far as MPI allows.
void MpiTransport::stop(const std::string& reason) noexcept {
  if (stopped_) return;
  stopped_ = reason;
  for (auto& [request, block] : receives_) block.cancel();
  drain();
}

void MpiTransport::drain() noexcept {
  const ReturnErrors return_errors;
  const Clock::time_point end = Clock::now() + std::min(kGrace, clock_.deadline());
  for (Backoff backoff; !drained() && Clock::now() < end;) backoff.pause();
}

// Errors no longer matter here, only that requests come to their end.
bool MpiTransport::drained() noexcept {
  const auto try_to = [](auto&& function) {
    try {
      return function();
    } catch (const std::exception&) {
      return false;
    }
  };
  bool all = try_to([&] {
    control_->poll();
    return control_->all_left();
  });
  for (auto& send : sends_) all &= try_to([&] { return send.second.pump(), send.second.done(); });
  for (auto& receive : receives_)
    all &= try_to([&] { return receive.second.retire(), receive.second.idle(); });
  return all;
}

void MpiTransport::close() {
  const ReturnErrors return_errors;
  announce_for_other_thread();
  if (stopped_) announce(*stopped_);
  if (!control_->failure() && close_together()) {
    check(MPI_Comm_free(&comm_), "MPI_Comm_free");
    return;
  }
  // MPI_Comm_free is collective, and not everybody is there: the communicator stays until MPI_Finalize.
  stop("its end was destroyed");
}

// A rank that finished says so, and stays until all have: until then heartbeats may be on their way to it.
bool MpiTransport::close_together() {
  for (Account& account : accounts_) account.collectives = collectives_;
  control_->send_finished(accounts_);
  const Clock::time_point began = Clock::now();
  for (Backoff backoff; !(control_->all_finished() && control_->all_left()); backoff.pause()) {
    if (control_->failure() || Clock::now() >= clock_.expiry(began)) return false;
    if (control_->poll()) clock_.note();
  }
  return std::ranges::all_of(sends_, [](const auto& entry) { return entry.second.done(); }) &&
         std::ranges::all_of(receives_, [](const auto& entry) { return entry.second.idle(); });
}

}  // namespace mpi

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator, double deadline_s) {
  return std::make_unique<mpi::MpiTransport>(communicator, deadline_s);
}

}  // namespace kvring
