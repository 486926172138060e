// MPI as a wire.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <vector>

#include "transport/mpi/check.h"
#include "transport/wire/wire.h"

namespace kvring::mpi {

class MpiWire final : public wire::Wire {
 public:
  explicit MpiWire(MPI_Comm communicator);  // collective: duplicates it
  ~MpiWire() override;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const char* name() const noexcept override { return "mpi"; }
  int ranks_on_this_host() const noexcept override { return ranks_on_this_host_; }

  wire::Operation send(int to, int tag, std::span<const std::byte> bytes, wire::Keep keep) override;
  wire::Operation receive(int from, int tag, std::span<std::byte> buffer, wire::Keep keep) override;
  wire::Operation allgather(std::shared_ptr<const wire::Gather> gather) override;
  std::optional<std::size_t> test(wire::Operation& operation) override;
  void cancel(const wire::Operation& operation) override;
  std::optional<wire::Arrival> take(int tag) override;

  void begin_calls() override;
  void end_calls() noexcept override { return_errors_.reset(); }

  wire::Clock::time_point now() const override { return wire::Clock::now(); }
  void nap(wire::Clock::duration time) override;
  void close() override;

 private:
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    wire::Keep keep;
    bool receives = false;
  };
  // A message that is known to have arrived, being copied.
  struct Taken {
    int from;
    std::shared_ptr<std::string> bytes;
    wire::Operation operation;
  };

  Slot& add(wire::Operation& operation, wire::Keep keep);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  int ranks_on_this_host_ = 1;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Taken> taken_;
  std::optional<ReturnErrors> return_errors_;
};

}  // namespace kvring::mpi
