// What the protocol between ranks needs of a network: messages, kept in order between a pair of ranks under
// one tag, and one collective. MPI is such a network; tests have one with a clock and faults of its own.
//
// Nothing here blocks but nap() and close(). Errors of the network are TransportError. Used by one thread at
// a time, but for now().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/deadline.h"

namespace kvring::wire {

using Clock = ProgressClock::Clock;

// Something under way; the wire remembers what. Inactive before it is begun and when it is complete.
struct Operation {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t index = kNone;
  bool active() const noexcept { return index != kNone; }
};

// A message that came unasked.
struct Arrival {
  int from = 0;
  std::string bytes;
};

// An allgather of parts whose lengths all ranks know.
struct Gather {
  std::span<const std::byte> mine;
  std::span<std::byte> all;
  std::vector<int> counts, offsets;  // by rank, bytes in `all`
};

// `keep` everywhere: memory that the operation touches, kept alive by the wire until it is complete; for as
// long as the program runs if it never is. Memory without it is the caller's, who cancels and waits.
using Keep = std::shared_ptr<const void>;

class Wire {
 public:
  virtual ~Wire() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const char* name() const noexcept = 0;
  virtual int ranks_on_this_host() const noexcept = 0;

  virtual Operation send(int to, int tag, std::span<const std::byte> bytes, Keep keep = {}) = 0;
  virtual Operation receive(int from, int tag, std::span<std::byte> buffer, Keep keep = {}) = 0;
  virtual Operation allgather(std::shared_ptr<const Gather> gather) = 0;  // keeps what it is given
  // Moves things along. The length of what was received, or sent, once the operation is complete, by which it
  // becomes inactive. A cancelled one becomes so too.
  virtual std::optional<std::size_t> test(Operation& operation) = 0;
  virtual void cancel(const Operation& operation) = 0;  // of a receive; test() tells when it is over
  // The next message under this tag, from whomever, if one has arrived.
  virtual std::optional<Arrival> take(int tag) = 0;

  // Around a burst of calls.
  virtual void begin_calls() {}
  virtual void end_calls() noexcept {}

  virtual Clock::time_point now() const = 0;
  virtual void nap(Clock::duration time) = 0;

  // Collective, after a clean end.
  virtual void close() = 0;
};

// Calls on a wire, from here to the end of the scope.
class Calls {
 public:
  explicit Calls(Wire& wire) : wire_(wire) { wire_.begin_calls(); }
  ~Calls() { wire_.end_calls(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

 private:
  Wire& wire_;
};

}  // namespace kvring::wire
