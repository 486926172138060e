// A ring over a wire. Everything that touches the wire happens in pump(), under one lock: called by a thread
// of its own, which sleeps between calls, or, inline, by whoever waits or reports progress. The other calls
// only change what is to be done, and look at what has been done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kvring/error.h"
#include "kvring/transport.h"
#include "transport/deadline.h"
#include "transport/wire/block.h"
#include "transport/wire/control.h"
#include "transport/wire/gathering.h"
#include "transport/wire/wire.h"

namespace kvring::wire {

struct WireOptions {
  double deadline_s = 30;
  // A thread for the wire. A wire that only moves things within calls hides its transfers behind computation
  // only with one.
  bool thread = true;
  // Blocks and collectives travel in pieces of at most this many bytes.
  std::size_t largest_piece = kLargestPiece;
};

class WireTransport final : public Transport {
 public:
  // Collective.
  WireTransport(std::unique_ptr<Wire> wire, const WireOptions& options);
  ~WireTransport() override;

  int rank() const noexcept override { return wire_->rank(); }
  int size() const noexcept override { return wire_->size(); }
  int ranks_on_this_host() const noexcept override { return wire_->ranks_on_this_host(); }
  const char* name() const noexcept override { return wire_->name(); }
  bool passes_pointers() const noexcept override { return false; }

  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override;
  Request post_forward(Request receive, int to) override;
  Request post_receive(int from, std::span<std::byte> buffer) override;
  Received wait_receive(Request receive, const WaitLabel& what) override;
  void release(Request receive) override;
  void wait_send(Request send, const WaitLabel& what) override;
  std::optional<Clock::time_point> completed(Request request) const override;
  void progress() override;
  std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) override;
  void barrier(const WaitLabel& what) override { allgather({}, what); }
  void fail(const std::string& reason) noexcept override;
  Verdict verdict() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Stopping: nothing new begins, what is under way is cancelled, and the others are asked whether they are
  // still there. Stopped: no memory of the caller is in use any more, as far as the wire can tell.
  enum class State { kRunning, kClosing, kStopping, kStopped };

  struct Outgoing {
    OutgoingBlock block;
    std::optional<Request> source;  // the receive that brings it, until it has
  };

  // What a thread waits for, in the lock.
  struct Waiting {
    const WaitLabel& what;
    std::function<Outcome()> poll;
    std::function<std::string()> peers;  // "from rank 2"
    std::function<int()> finished;       // the rank whose early end makes the outcome kNever
    int on = -1;                         // the one rank that can end it; -1: any
  };
  void wait(Lock& lock, const Waiting& waiting);
  void sleep(Lock& lock, Clock::time_point until);
  void wake();  // whoever pumps

  void run();  // the thread's
  bool pump() noexcept;
  bool pump_running();
  void bind_if_there(Outgoing& send);
  void pump_stopping();
  void pump_closing();
  bool about_to_send(int peer) const;
  void pump_heartbeat();
  int silent_rank(Clock::time_point now, Clock::duration silence) const;
  void check_silence(Clock::time_point now);
  bool busy() const noexcept;

  void stop(ErrorCode code, const std::string& text, bool own_words);
  void hear_failure();
  void settle();
  [[noreturn]] void throw_failure();
  Status status() const noexcept;

  OutgoingBlock& send_of(Request request);
  IncomingBlock& receive_of(Request request);
  bool close_together(Lock& lock);
  void end_thread();

  std::unique_ptr<Wire> wire_;
  ProgressClock clock_;
  std::size_t largest_piece_;
  Clock::duration while_waiting_;  // the pause between two looks

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // something was done
  std::condition_variable work_;     // something is to be done
  Control control_;
  State state_ = State::kRunning;
  Request next_ = 0;
  std::unordered_map<Request, Outgoing> sends_;
  std::unordered_map<Request, IncomingBlock> receives_;
  std::optional<Gathering> gathering_;
  std::vector<Account> accounts_;  // by peer; collectives are counted below
  std::uint64_t collectives_ = 0;
  Clock::time_point last_pump_, last_heartbeat_;

  const Waiting* waiting_ = nullptr;
  Clock::time_point waiting_since_;
  std::atomic<std::uint64_t> progress_ = 0;

  bool said_finished_ = false, closed_ = false;  // once closing

  // Once stopping.
  std::optional<Failure> failure_;
  ErrorCode failure_code_ = ErrorCode::kTransport;
  std::string own_words_;  // of an error of this rank, until it has been thrown
  bool told_ = false;      // the others
  Status stopped_status_;
  Clock::time_point asked_, give_up_;  // waiting for answers
  std::optional<Verdict> verdict_;
  std::atomic<bool> broken_ = false;  // the same, for progress()

  const std::thread::id owner_ = std::this_thread::get_id();
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace kvring::wire
