// What ranks tell each other beside blocks: that they are alive and what they wait for, that they finished,
// failed or stopped. Each rank tells every other one directly. At a heartbeat every tenth of the deadline
// that is few messages (1,024 ranks, 30 s: 341 a second of 64 bytes from each), and it needs no forwarding,
// where stale news could go round in circles and keep a dead ring alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/wire/wire.h"

namespace kvring::wire {

// What a rank is at.
struct Status {
  std::uint64_t progress = 0;    // grows with every piece of work done and every transfer completed
  std::int32_t waiting = 0;      // 1 while it waits
  std::int32_t waiting_on = -1;  // for this rank; -1: for several
};

// What a rank has done with another one when it finishes: what lies beyond can no longer come.
struct Account {
  std::uint64_t sent = 0;         // blocks to that rank
  std::uint64_t posted = 0;       // receives from that rank
  std::uint64_t collectives = 0;  // begun
};

// What is known of another rank.
struct Peer {
  Clock::time_point heard;  // the last sign of it, whatever it said
  Status status;
  std::optional<Account> finished;
  bool stopped = false;  // failed, or heard of a failure: it answered
};

// A failure somewhere in the ring.
struct Failure {
  int rank = 0;
  bool timeout = false;  // it only means that this rank lost patience
  int unheard = -1;      // ... with this one, of which it heard nothing
  std::string text;      // "rank 3 failed: ..."
};

class Control {
 public:
  explicit Control(Wire& wire);

  // Takes what arrived and retires what left. True when another rank made progress.
  bool poll();

  // To every rank that has taken the one before.
  void send_heartbeat(const Status& status);
  // accounts: by rank.
  void send_finished(const std::vector<Account>& accounts);
  // This rank's own failure, or that it has stopped because of another's.
  void send_failure(const Failure& failure, const Status& status);
  void send_stopped(const Status& status);

  const std::optional<Failure>& failure() const noexcept { return failure_; }  // the first that was told
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool all_finished() const noexcept;  // all others
  bool all_left();                     // nothing is being sent
  // All others have stopped and know what this rank told them, or have finished; but for those of which
  // nothing was heard since then.
  bool all_stopped(Clock::time_point since = Clock::time_point::min());
  // Whoever did not listen for a while cannot blame others for having heard nothing.
  void forgive_silence();

 private:
  enum class Kind : std::uint64_t { kHeartbeat, kFinished, kFailure, kStopped };
  struct Note;
  using Bytes = std::shared_ptr<const std::string>;

  static Bytes encode(const Note& note, std::string_view reason = {});
  Operation send(int to, const Bytes& bytes);
  void send_to_all(const Bytes& bytes);
  bool retire(Operation& operation);
  bool has_left(int to);  // everything that is for that rank
  bool read(int from, std::string_view bytes);

  Wire& wire_;
  std::vector<Operation> heartbeats_;          // by rank
  std::vector<std::vector<Operation>> notes_;  // by rank
  std::vector<Peer> peers_;                    // by rank
  std::optional<Failure> failure_;
};

}  // namespace kvring::wire
