#include "transport/deadline.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvring/error.h"

namespace kvring {
namespace {

ProgressClock::Clock::duration checked_deadline(double seconds) {
  if (!(seconds > 0 && seconds <= ProgressClock::kLongestDeadline))
    throw InvalidArgument(fmt::format("a deadline of {} s: it must be above 0 and at most {} s", seconds,
                                      ProgressClock::kLongestDeadline));
  return std::chrono::duration_cast<ProgressClock::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

ProgressClock::ProgressClock(double deadline_s, Clock::time_point now)
    : deadline_(checked_deadline(deadline_s)), last_(now.time_since_epoch().count()) {}

void ProgressClock::note(Clock::time_point now) noexcept {
  const Clock::rep ticks = now.time_since_epoch().count();
  // Many ranks share this word: a store for every piece of computation would bounce its cache line, and a
  // hundredth of the deadline is precise enough.
  if (ticks - last_.load(std::memory_order_relaxed) > deadline_.count() / 100)
    last_.store(ticks, std::memory_order_relaxed);
}

ProgressClock::Clock::time_point ProgressClock::expiry(Clock::time_point began) const noexcept {
  const Clock::time_point last{Clock::duration(last_.load(std::memory_order_relaxed))};
  return std::max(began, last) + deadline_;
}

void check_peer(int peer, int rank, int size) {
  if (peer < 0 || peer >= size || peer == rank)
    throw InvalidArgument(
        fmt::format("rank {} of {} cannot exchange blocks with rank {}: name another rank from 0 to {}", rank,
                    size, peer, size - 1));
}

std::string from_rank(int peer) { return fmt::format("from rank {}", peer); }

std::string to_rank(int peer) { return fmt::format("to rank {}", peer); }

std::string timeout_text(int rank, ProgressClock::Clock::duration waited, const WaitLabel& what,
                         std::string_view peers) {
  return fmt::format("rank {} waited {:.1f} s for {} {}", rank, std::chrono::duration<double>(waited).count(),
                     what, peers);
}

std::string finished_text(int rank, const WaitLabel& what, std::string_view peers, int finished) {
  return fmt::format("rank {} waits for {} {}, which cannot complete: rank {} has finished", rank, what,
                     peers, finished);
}

std::string failure_text(int rank, std::string_view reason) {
  return fmt::format("rank {} failed: {}", rank, reason);
}

}  // namespace kvring
