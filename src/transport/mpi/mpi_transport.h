// Ranks as MPI processes. Everything happens on the thread that made the transport, inside its calls:
// MPI_THREAD_FUNNELED is enough, and nothing moves between calls but what MPI moves by itself.
#pragma once

#include <mpi.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kvring/transport.h"
#include "transport/deadline.h"
#include "transport/mpi/block.h"
#include "transport/mpi/control.h"

namespace kvring::mpi {

class MpiTransport final : public Transport {
 public:
  // Collective. Blocks and collectives travel in pieces of at most `largest_piece` bytes.
  MpiTransport(MPI_Comm communicator, double deadline_s, std::size_t largest_piece = kLargestPiece);
  ~MpiTransport() override;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  int ranks_on_this_host() const noexcept override { return ranks_on_this_host_; }
  const char* name() const noexcept override { return "mpi"; }
  bool passes_pointers() const noexcept override { return false; }

  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override;
  Request post_receive(int from, std::span<std::byte> buffer) override;
  Received wait_receive(Request receive, const WaitLabel& what) override;
  void release(Request receive) override;
  void wait_send(Request send, const WaitLabel& what) override;
  bool ready(Request request) override;
  void progress() override;
  std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) override;
  void barrier(const WaitLabel& what) override;
  void fail(const std::string& reason) noexcept override;

 private:
  using Clock = ProgressClock::Clock;

  // Runs a wait: whatever it throws ends this rank's transfers first, because the caller will free memory.
  template <typename Function>
  auto guarded(Function&& function) {
    try {
      return function();
    } catch (const std::exception& error) {
      stop(error.what());
      throw;
    }
  }

  void wait(const Wait& wait);
  void wait_collective(MPI_Request& request, const WaitLabel& what);
  void pump();
  void try_pump(bool computing) noexcept;
  void show_life();
  void throw_if_failed() const;
  int finished_early() const;

  void announce(const std::string& reason);
  void stop(const std::string& reason) noexcept;
  void drain() noexcept;
  bool drained() noexcept;
  void announce_for_other_thread();
  void close();
  bool close_together();

  ProgressClock clock_;
  std::size_t largest_piece_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  int ranks_on_this_host_ = 1;
  std::optional<Control> control_;
  std::thread::id owner_ = std::this_thread::get_id();
  Clock::time_point last_heartbeat_ = Clock::now();

  Request next_ = 0;
  std::unordered_map<Request, OutgoingBlock> sends_;
  std::unordered_map<Request, IncomingBlock> receives_;
  std::vector<Account> accounts_;  // by peer; collectives are counted below
  std::uint64_t collectives_ = 0;

  std::optional<std::string> stopped_;  // the first error of this end: it only closes from here on
  std::mutex other_thread_mutex_;
  std::optional<std::string> other_thread_failure_;
  std::atomic<bool> other_thread_failed_ = false;
};

}  // namespace kvring::mpi
