// Virtual time, and who runs. Every rank is a thread, but exactly one runs at a time: it keeps the baton
// until it sleeps, and then whoever wakes first in virtual time gets it, ties as the seed says. So a seed
// gives one run, whatever the machine does; and a wait of 30 seconds costs milliseconds.
#pragma once

#include <semaphore.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "tests/support/random_problem.h"
#include "transport/wire/wire.h"

namespace kvring::sim {

using Time = wire::Clock::time_point;
using Duration = wire::Clock::duration;

inline constexpr Time kNever = Time::max();
// Not zero: nothing may take an unset time for the beginning.
inline constexpr Time kStart = Time(std::chrono::hours(1));

// A rank does not run from `at` on, for that long; Duration::max() is a crash.
struct Outage {
  Time at;
  Duration length;
};

class Scheduler {
 public:
  Scheduler(int ranks, std::uint64_t seed);

  void plan_outage(int rank, const Outage& outage);  // before run(); at most one per rank

  // body(rank) for every rank, until all have returned.
  //
  // The thread of a crashed rank is only given the baton again when all others have ended, so that it
  // unwinds: for everybody else it is gone.
  void run(const std::function<void(int)>& body);

  Time now() const noexcept { return now_; }
  bool crashed(int rank) const { return state(rank).crashed_at != kNever; }
  Time crashed_at(int rank) const { return state(rank).crashed_at; }

  // Of the rank that runs. A nap ends early when somebody rouses the sleeper.
  void sleep(int rank, Duration time) { pass(rank, now_ + time, false); }
  void nap(int rank, Time until) { pass(rank, until, true); }
  // A rank that naps wakes at `at`, if that is sooner.
  void rouse(int rank, Time at);

  // A digest of who ran when, and of what log() was told: two runs of a seed have the same.
  void log(std::uint64_t what) noexcept;
  std::uint64_t digest() const noexcept { return digest_; }
  std::uint64_t events() const noexcept { return events_; }
  // When a rank last woke from an outage.
  Time last_outage_end() const noexcept { return last_outage_end_; }

 private:
  // POSIX's: the standard library's spins first, which with one runner only costs.
  class Baton {
   public:
    Baton() { ::sem_init(&semaphore_, 0, 0); }
    ~Baton() { ::sem_destroy(&semaphore_); }
    Baton(const Baton&) = delete;
    Baton& operator=(const Baton&) = delete;
    void release() { ::sem_post(&semaphore_); }
    void acquire() {
      while (::sem_wait(&semaphore_) != 0) {  // interrupted
      }
    }

   private:
    ::sem_t semaphore_;
  };
  struct State {
    Baton baton;
    Time wake = kStart;
    std::uint64_t tie = 0;
    bool rousable = false;
    bool ended = false;
    Outage outage{kNever, {}};
    Time crashed_at = kNever;
  };

  State& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
  const State& state(int rank) const { return states_[static_cast<std::size_t>(rank)]; }
  void pass(int rank, Time until, bool rousable);
  void wait(int rank, Time until, bool rousable);
  void suffer(int rank);
  int pick();  // who runs next; -1: all have ended
  void end(int rank);

  test::Rng rng_;
  std::deque<State> states_;  // by rank
  Baton all_ended_;
  Time now_ = kStart;
  Time last_outage_end_ = kStart;
  std::uint64_t digest_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace kvring::sim
