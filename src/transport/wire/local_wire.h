// A wire between threads of one process, for tests of the protocol without MPI. Every message is copied when
// it is sent, and taken by the receive that matches; the clock is real.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "kvring/error.h"
#include "transport/wire/wire.h"

namespace kvring::wire {

// What the ends share.
class LocalNetwork {
 public:
  using Address = std::tuple<int, int, int>;  // from, to, tag

  void put(const Address& address, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    mail_[address].emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::optional<std::string> get(const Address& address) {
    const std::lock_guard lock(mutex_);
    const auto found = mail_.find(address);
    if (found == mail_.end() || found->second.empty()) return std::nullopt;
    std::string bytes = std::move(found->second.front());
    found->second.pop_front();
    return bytes;
  }

 private:
  std::mutex mutex_;
  std::map<Address, std::deque<std::string>> mail_;
};

class LocalWire final : public Wire {
 public:
  LocalWire(std::shared_ptr<LocalNetwork> network, int rank, int size)
      : network_(std::move(network)), rank_(rank), size_(size) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const char* name() const noexcept override { return "local"; }
  int ranks_on_this_host() const noexcept override { return size_; }

  Operation send(int to, int tag, std::span<const std::byte> bytes, Keep) override {
    network_->put({rank_, to, tag}, bytes);
    return add({.bytes = bytes.size(), .done = true});
  }
  Operation receive(int from, int tag, std::span<std::byte> buffer, Keep keep) override {
    return add({.from = from, .tag = tag, .buffer = buffer, .keep = std::move(keep)});
  }
  Operation allgather(std::shared_ptr<const Gather> gather) override {
    for (int to = 0; to < size_; ++to) network_->put({rank_, to, kGatherTag}, gather->mine);
    return add({.gather = std::move(gather)});
  }
  std::optional<std::size_t> test(Operation& operation) override {
    Pending& pending = pending_.at(operation.index);
    if (!pending.done) (pending.gather ? pull_gather : pull_message)(*this, pending);
    if (!pending.done) return std::nullopt;
    const std::size_t bytes = pending.bytes;
    pending_.erase(operation.index);
    operation = {};
    return bytes;
  }
  void cancel(const Operation& operation) override { pending_.at(operation.index).done = true; }
  std::optional<Arrival> take(int tag) override {
    for (int from = 0; from < size_; ++from)
      if (auto bytes = network_->get({from, rank_, tag})) return Arrival{from, std::move(*bytes)};
    return std::nullopt;
  }

  Clock::time_point now() const override { return Clock::now(); }
  void nap(Clock::duration time) override { std::this_thread::sleep_for(time); }
  void close() override {}

 private:
  static constexpr int kGatherTag = -1;

  struct Pending {
    int from = 0, tag = 0;
    std::span<std::byte> buffer{};
    Keep keep{};
    std::shared_ptr<const Gather> gather{};
    int gathered = 0;  // ranks
    std::size_t bytes = 0;
    bool done = false;
  };

  Operation add(Pending pending) {
    pending_.emplace(next_, std::move(pending));
    return {next_++};
  }

  static void pull_message(LocalWire& self, Pending& pending) {
    const auto message = self.network_->get({pending.from, self.rank_, pending.tag});
    if (!message) return;
    if (message->size() > pending.buffer.size()) throw TransportError("a message is longer than its buffer");
    std::memcpy(pending.buffer.data(), message->data(), message->size());
    pending.bytes = message->size();
    pending.done = true;
  }
  static void pull_gather(LocalWire& self, Pending& pending) {
    const Gather& gather = *pending.gather;
    for (; pending.gathered < self.size_; ++pending.gathered) {
      const auto part = self.network_->get({pending.gathered, self.rank_, kGatherTag});
      if (!part) return;
      const auto r = static_cast<std::size_t>(pending.gathered);
      if (static_cast<int>(part->size()) != gather.counts[r])
        throw TransportError("ranks gather different parts");
      std::memcpy(gather.all.data() + gather.offsets[r], part->data(), part->size());
    }
    pending.done = true;
  }

  std::shared_ptr<LocalNetwork> network_;
  int rank_, size_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, Pending> pending_;
};

}  // namespace kvring::wire
