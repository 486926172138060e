// What ranks tell each other beside blocks: that they are alive, that they finished, that they failed. Each
// rank tells every other one directly. At a heartbeat every tenth of the deadline that is few messages (1,024
// ranks, 30 s: 341 a second of 32 bytes from each), and it needs no forwarding, where stale news could go
// round in circles and keep a dead ring alive.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvring::mpi {

// What a rank has done with another one when it finishes: what lies beyond can no longer come.
struct Account {
  std::uint64_t sent = 0;         // blocks to that rank
  std::uint64_t posted = 0;       // receives from that rank
  std::uint64_t collectives = 0;  // begun
};

class Control {
 public:
  explicit Control(MPI_Comm comm);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Takes what arrived and retires what left. True when somebody gave a sign of life.
  bool poll();

  // To every rank that has taken the one before.
  void send_heartbeat();
  // accounts: by rank.
  void send_finished(const std::vector<Account>& accounts);
  // Also sets failure(), unless a failure was known before: then it does nothing.
  void send_failure(const std::string& reason);

  const std::optional<std::string>& failure() const noexcept { return failure_; }  // "rank 3 failed: ..."
  // What another rank that finished did with this one.
  const std::optional<Account>& finished(int rank) const { return finished_[static_cast<std::size_t>(rank)]; }
  bool all_finished() const noexcept { return finished_count_ == size_ - 1; }  // all others
  bool all_left();                                                             // nothing is being sent

 private:
  struct Outgoing {
    std::shared_ptr<const std::string> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Incoming {
    int from = 0;
    std::shared_ptr<std::string> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void send(Outgoing& slot, int to, std::shared_ptr<const std::string> bytes);
  void accept_arrivals();
  void read(int from, std::string_view bytes);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  std::vector<Outgoing> heartbeats_;  // by rank
  std::vector<Outgoing> notes_;
  std::vector<Incoming> incoming_;
  std::optional<std::string> failure_;
  std::vector<std::optional<Account>> finished_;
  int finished_count_ = 0;
  bool sign_of_life_ = false;
};

}  // namespace kvring::mpi
