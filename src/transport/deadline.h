// What both transports share: the clock that tells a slow world from a dead one, what a wait is, and its
// words in errors.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "kvring/transport.h"

namespace kvring {

// Deadlines count from the last sign of life, not from the start of a wait: a neighbour that is slow but
// still computes is not dead. What time it is, its owner says: tests have virtual time. Thread-safe.
class ProgressClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws InvalidArgument unless 0 < deadline_s <= kLongestDeadline.
  ProgressClock(double deadline_s, Clock::time_point now);

  static constexpr double kLongestDeadline = 1e6;  // seconds, 11 days

  Clock::duration deadline() const noexcept { return deadline_; }

  // Somebody completed something.
  void note(Clock::time_point now) noexcept;
  // When a wait that began at `began` is to be given up, as far as is known now.
  Clock::time_point expiry(Clock::time_point began) const noexcept;

 private:
  Clock::duration deadline_;
  std::atomic<Clock::rep> last_;
};

enum class Outcome { kPending, kDone, kNever };

// One wait: what it is for, how it stands, and, for the error message, on whom.
struct Wait {
  const WaitLabel& what;
  std::function<Outcome()> poll;
  std::function<std::string()> peers;  // "from rank 2"
  std::function<int()> finished;       // the rank whose early end makes the outcome kNever
};

// Throws InvalidArgument unless `peer` is another rank of the ring: a block for oneself needs no transport.
void check_peer(int peer, int rank, int size);

// "from rank 2", "to rank 2".
std::string from_rank(int peer);
std::string to_rank(int peer);

// "rank 3 waited 30.0 s for block 5 (lap 2, step 4 of 8) from rank 2".
std::string timeout_text(int rank, ProgressClock::Clock::duration waited, const WaitLabel& what,
                         std::string_view peers);
// "rank 3 waits for block 5 (...) from rank 2, which cannot complete: rank 2 has finished".
std::string finished_text(int rank, const WaitLabel& what, std::string_view peers, int finished);
// "rank 2 failed: <reason>".
std::string failure_text(int rank, std::string_view reason);

}  // namespace kvring
