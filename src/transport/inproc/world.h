// What the ends of an in-process ring share. One mutex guards all of it: a rank takes it a handful of times
// per step of a computation that lasts milliseconds. Every rank sleeps on a condition variable of its own,
// so a message wakes one thread of perhaps a thousand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvring/transport.h"
#include "transport/deadline.h"

namespace kvring::inproc {

// When something ended, for those that outlive it.
using Ending = std::shared_ptr<std::optional<ProgressClock::Clock::time_point>>;

// Memory that one rank lent to others. Lives as long as a message that nobody has received, or whose receiver
// still reads it, points there; passing a payload on shares its loan. Changed with the world locked.
struct Loan {
  Loan(int by, std::condition_variable& wake) : lender(by), wake_lender(wake) {}
  ~Loan() {
    *ended = ProgressClock::Clock::now();
    wake_lender.notify_all();
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  int lender;
  std::condition_variable& wake_lender;
  Ending ended = std::make_shared<std::optional<ProgressClock::Clock::time_point>>();
};

// Shared by the send and the receive it matches.
struct Message {
  MessageHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<Loan> loan;  // until the receiver releases it
  bool abandoned = false;      // the receiver finished without it
  ProgressClock::Clock::time_point sent = ProgressClock::Clock::now();
};

// What is to be done with a message as soon as it is there.
struct Forward {
  int to = 0;
  std::uint64_t sequence = 0;
  Ending done;
};

// One direction of a pair of ranks.
struct Channel {
  std::uint64_t sent = 0;
  std::uint64_t posted = 0;                                   // receives
  std::map<std::uint64_t, std::shared_ptr<Message>> arrived;  // by sequence; not yet received
  std::map<std::uint64_t, Forward> forwards;                  // of messages that have not arrived
};

struct RankState {
  std::condition_variable wake;
  std::map<int, Channel> from;
  bool finished = false;  // its end is destroyed
  bool stopped = false;   // it reads no payload any more: it failed, saw an error, or finished
  bool waiting = false;
};

// A collective is complete when everybody's part is there. The next one cannot complete before the slowest
// rank has left this one, so one result is enough.
struct Gather {
  std::uint64_t generation = 0;
  int arrived = 0;
  std::vector<std::optional<std::string>> parts;
  std::shared_ptr<const std::vector<std::string>> result;
};

class World {
 public:
  World(int ranks, double deadline_s);

  using Lock = std::unique_lock<std::mutex>;
  Lock lock() { return Lock(mutex_); }

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  RankState& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  ProgressClock& clock() noexcept { return clock_; }
  Gather& gather() noexcept { return gather_; }
  bool failed() const noexcept { return failed_; }  // also without the lock
  const Verdict& verdict() const noexcept { return verdict_; }

  // Puts a message where `to` finds it, and where others do that it is to be passed on to.
  void deliver(Lock& lock, int from, int to, const std::shared_ptr<Message>& message);
  // The same message for the next rank.
  void pass_on(Lock& lock, int by, const Forward& forward, const Message& message);

  // Returns when done; throws when any rank failed, when it can never be done and at the deadline. The
  // functions of `wait` are called with the mutex held. With `guards_payload` a failure is thrown only when
  // no rank reads payloads any more, because the caller will then free the memory that others were given.
  void wait(Lock& lock, int rank, const Wait& wait, bool guards_payload = false);
  void fail(Lock& lock, int rank, const std::string& reason) noexcept;
  // Throws if any rank failed.
  void check(Lock& lock, int rank);
  void finish(Lock& lock, int rank);
  void wake_all() noexcept;

 private:
  void stop(int rank) noexcept;
  void blame_for_timeout();
  [[noreturn]] void throw_failure(Lock& lock, int rank, bool guards_payload);

  std::mutex mutex_;
  std::vector<RankState> ranks_;
  Gather gather_;
  ProgressClock clock_;
  std::optional<std::string> failure_;
  std::atomic<bool> failed_ = false;
  Verdict verdict_;
  int stopped_ = 0;
  std::condition_variable all_stopped_;
};

}  // namespace kvring::inproc
