// The simulated network as a wire: one rank's end.
#pragma once

#include <utility>

#include "tests/sim/network.h"
#include "transport/wire/wire.h"

namespace kvring::sim {

class SimWire final : public wire::Wire {
 public:
  SimWire(Network& network, int rank) : network_(network), rank_(rank) {}
  ~SimWire() override { network_.leave(rank_); }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return network_.ranks(); }
  const char* name() const noexcept override { return "simulated"; }
  int ranks_on_this_host() const noexcept override { return network_.ranks(); }

  wire::Operation send(int to, int tag, std::span<const std::byte> bytes, wire::Keep keep) override {
    return network_.send(rank_, to, tag, bytes, std::move(keep));
  }
  wire::Operation receive(int from, int tag, std::span<std::byte> buffer, wire::Keep keep) override {
    return network_.receive(rank_, from, tag, buffer, std::move(keep));
  }
  wire::Operation allgather(std::shared_ptr<const wire::Gather> gather) override {
    return network_.allgather(rank_, std::move(gather));
  }
  std::optional<std::size_t> test(wire::Operation& operation) override {
    return network_.test(rank_, operation);
  }
  void cancel(const wire::Operation& operation) override { network_.cancel(rank_, operation); }
  std::optional<wire::Arrival> take(int tag) override { return network_.take(rank_, tag); }
  void begin_calls() override { network_.progress(rank_); }

  wire::Clock::time_point now() const override { return network_.now(); }
  void nap(wire::Clock::duration time) override { network_.nap(rank_, time); }
  void close() override {}

 private:
  Network& network_;
  int rank_;
};

}  // namespace kvring::sim
