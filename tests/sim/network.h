// A network in virtual time. Messages of one pair of ranks and one tag stay in order; all others overtake
// each other as the jitter has it. Short ones leave at once, long ones wait for their receive, and then for
// their sender to call (as MPI has it): memory of a rank is only ever touched within its own calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/fault.h"
#include "tests/sim/injector.h"
#include "tests/sim/scheduler.h"
#include "transport/wire/wire.h"

namespace kvring::sim {

struct NetworkOptions {
  Duration latency{};
  Duration jitter{};              // at most that much is added
  double ns_per_byte = 0;         // of every message
  std::size_t longest_eager = 0;  // bytes; a longer message waits for its receive
  Duration longest_nap{};         // of a rank that nothing reaches
  bool reports_crashes = false;   // calls that concern a crashed rank fail, soon
  std::uint64_t most_calls = 0;   // of all ranks: more of them is a hang
};

class Network {
 public:
  Network(Scheduler& scheduler, int ranks, const NetworkOptions& options, std::vector<Fault> faults,
          std::uint64_t seed);

  int ranks() const noexcept { return static_cast<int>(ends_.size()); }
  Time now() const noexcept { return scheduler_.now(); }

  // Calls of `rank`, which runs.
  wire::Operation send(int rank, int to, int tag, std::span<const std::byte> bytes, wire::Keep keep);
  wire::Operation receive(int rank, int from, int tag, std::span<std::byte> buffer, wire::Keep keep);
  wire::Operation allgather(int rank, std::shared_ptr<const wire::Gather> gather);
  std::optional<std::size_t> test(int rank, wire::Operation& operation);
  void cancel(int rank, const wire::Operation& operation);
  std::optional<wire::Arrival> take(int rank, int tag);
  void progress(int rank);  // all that is under way
  void nap(int rank, Duration time);
  void leave(int rank);  // its memory is gone

  const Injector& injector() const noexcept { return injector_; }
  Time last_delivery() const noexcept { return last_delivery_; }  // of anything but a control note
  std::uint64_t calls() const noexcept { return calls_; }

 private:
  struct Message {
    int from = 0, to = 0, tag = 0;
    std::size_t length = 0;
    std::vector<std::byte> bytes;  // an eager one's; a long one's once it has left
    Time arrives = kNever;         // it, or the word that it waits
    bool eager = true;
    Time called = kNever;  // when its sender hears that there is a receive
    Time here = kNever;    // when all of a long one has arrived
  };
  using MessagePointer = std::shared_ptr<Message>;

  enum class Doing : std::uint8_t { kNothing, kSend, kReceive, kGather };
  struct Slot {
    Doing doing = Doing::kNothing;
    int peer = -1, tag = 0;
    MessagePointer message;  // of a receive: once there is one
    std::span<const std::byte> source;
    std::span<std::byte> buffer;
    std::shared_ptr<const wire::Gather> gather;
    wire::Keep keep;
    bool cancelled = false;
  };
  struct Channel {
    std::deque<MessagePointer> messages;  // in the order of arrival
    std::deque<std::uint32_t> receives;   // slots
    Time last = kStart;                   // arrival
    std::uint64_t sent = 0;
  };
  struct End {
    std::vector<Slot> slots;
    std::vector<std::uint32_t> free;
    std::map<std::pair<int, int>, Channel> from;  // by tag and rank
    std::vector<MessagePointer> taken;            // long ones under way to take()
    std::multiset<Time> events;                   // when something may have changed here
    Duration quiet{1};                            // the last nap
    int gathers = 0;
  };

  End& end(int rank) { return ends_[static_cast<std::size_t>(rank)]; }
  Slot& add(int rank, wire::Operation& operation);
  void dispatch(Class message_class, int from, int to, int tag, Slot* slot);
  MessagePointer deliver(Parcel parcel, bool eager, std::size_t length);
  Time arrival(int from, int to, std::size_t bytes);
  void announce(int rank, Time at);
  void match(int rank, int from, int tag);
  void push_out(int rank, Slot& slot);
  std::optional<std::size_t> poll(int rank, Slot& slot);
  std::optional<std::size_t> poll_gather(int rank, const Slot& slot);
  void check_peer(int rank, int peer) const;
  void count_call();

  Scheduler& scheduler_;
  NetworkOptions options_;
  std::vector<Fault> cuts_;
  Injector injector_;
  test::Rng rng_;
  std::vector<End> ends_;  // by rank
  Time last_delivery_ = kStart;
  std::uint64_t calls_ = 0;
};

}  // namespace kvring::sim
