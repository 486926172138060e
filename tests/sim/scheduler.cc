#include "tests/sim/scheduler.h"

#include <algorithm>
#include <thread>

namespace kvring::sim {

Scheduler::Scheduler(int ranks, std::uint64_t seed) : rng_(seed) {
  states_.resize(static_cast<std::size_t>(ranks));
}

void Scheduler::plan_outage(int rank, const Outage& outage) { state(rank).outage = outage; }

void Scheduler::run(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  const int ranks = static_cast<int>(states_.size());
  for (int rank = 0; rank < ranks; ++rank) {
    state(rank).wake = now_ + std::chrono::microseconds(rng_.between(0, 300));
    threads.emplace_back([this, rank, &body] {
      state(rank).baton.acquire();
      body(rank);
      end(rank);
    });
  }
  state(pick()).baton.release();
  all_ended_.acquire();
  for (std::thread& thread : threads) thread.join();
}

void Scheduler::end(int rank) {
  state(rank).ended = true;
  const int next = pick();
  (next < 0 ? all_ended_ : state(next).baton).release();
}

int Scheduler::pick() {
  const auto first = [this] {
    int best = -1;
    for (int rank = 0; rank < static_cast<int>(states_.size()); ++rank) {
      const State& s = state(rank);
      if (s.ended) continue;
      if (best < 0 || s.wake < state(best).wake || (s.wake == state(best).wake && s.tie < state(best).tie))
        best = rank;
    }
    return best;
  };
  int next = first();
  if (next < 0) return next;
  if (state(next).wake == kNever)  // only crashed ranks are left
    state(next).wake = now_;
  now_ = std::max(now_, state(next).wake);
  ++events_;
  log(static_cast<std::uint64_t>(next));
  return next;
}

void Scheduler::wait(int rank, Time until, bool rousable) {
  State& self = state(rank);
  self.wake = std::max(until, now_);
  self.rousable = rousable;
  self.tie = rng_.next();
  const int next = pick();
  if (next != rank) {
    state(next).baton.release();
    self.baton.acquire();
  }
  self.rousable = false;
}

void Scheduler::pass(int rank, Time until, bool rousable) {
  const Outage outage = state(rank).outage;
  if (outage.at > until) return wait(rank, until, rousable);
  wait(rank, outage.at, rousable);
  if (now_ < outage.at) return;  // roused
  const Duration rest = until - std::max(now_, outage.at);
  suffer(rank);
  if (!rousable && rest > Duration::zero()) wait(rank, now_ + rest, false);
}

void Scheduler::suffer(int rank) {
  const Duration length = state(rank).outage.length;
  state(rank).outage.at = kNever;
  if (length == Duration::max()) {
    state(rank).crashed_at = now_;
    wait(rank, kNever, false);
  } else {
    wait(rank, now_ + length, false);
    last_outage_end_ = now_;
  }
}

void Scheduler::rouse(int rank, Time at) {
  State& sleeper = state(rank);
  if (sleeper.rousable && at < sleeper.wake) sleeper.wake = std::max(at, now_);
}

void Scheduler::log(std::uint64_t what) noexcept {
  const auto mix = [this](std::uint64_t word) {
    digest_ = (digest_ ^ word) * 0x9e3779b97f4a7c15;
    digest_ ^= digest_ >> 32;
  };
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  mix(what);
}

}  // namespace kvring::sim
