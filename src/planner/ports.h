// Which transfers of a simulated network may move at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/index_set.h"
#include "planner/moment.h"
#include "planner/network.h"

namespace kvring {

// A rank has one port out and one in within its node, and one of each to other nodes. A transfer holds two of
// them until its end, others wait their turn. So what a rank sends in a step takes the sum of its messages,
// as the planner prices it.
class Ports {
 public:
  explicit Ports(const Network& network)
      : network_(network),
        ranks_(network.ranks()),
        ports_(static_cast<std::size_t>(4 * ranks_)),
        dirty_(ports_.size()) {}

  // Transfer `id` can move from now on; of a rank's transfers the one of lowest `order` has its turn first.
  void want(int id, int from, int to, std::uint64_t order) {
    wait_at(route(from, to).front(), {order, id, from, to});
  }
  // The transfer is over, and led to that moment.
  void release(int from, int to, const Moment& now) {
    for (const std::int32_t index : route(from, to)) {
      Port& port = at(index);
      port.free = true;
      port.freed = now;
      dirty_.insert(static_cast<std::size_t>(index));
    }
  }
  // Calls start(id, moment) for every transfer whose turn it is, with the last moment that it waited for.
  template <typename Start>
  void start_all(Start start) {
    dirty_.drain([&](std::size_t index) {
      Port& port = ports_[index];
      while (port.free && !port.waiting.empty()) {
        std::pop_heap(port.waiting.begin(), port.waiting.end(), Later());
        const Waiting next = port.waiting.back();
        port.waiting.pop_back();
        try_start(next, start);
      }
    });
  }

 private:
  struct Waiting {
    std::uint64_t order;
    std::int32_t id, from, to;
  };
  struct Later {
    bool operator()(const Waiting& a, const Waiting& b) const {
      return std::pair(a.order, a.id) > std::pair(b.order, b.id);
    }
  };
  struct Port {
    bool free = true;
    Moment freed;
    std::vector<Waiting> waiting;  // a heap
  };

  // What a transfer needs.
  std::array<std::int32_t, 2> route(int from, int to) const {
    const int far = network_.crosses(from, to) ? 1 : 0;
    return {2 * from + far, 2 * (ranks_ + to) + far};
  }
  Port& at(std::int32_t index) { return ports_[static_cast<std::size_t>(index)]; }
  void wait_at(std::int32_t index, const Waiting& waiting) {
    Port& port = at(index);
    port.waiting.push_back(waiting);
    std::push_heap(port.waiting.begin(), port.waiting.end(), Later());
    // While transfers start, none waits at a port that is free.
    if (port.free) dirty_.insert(static_cast<std::size_t>(index));
  }
  template <typename Start>
  void try_start(const Waiting& t, Start start) {
    const auto [out, in] = route(t.from, t.to);
    for (const std::int32_t index : {out, in}) {
      if (!at(index).free) return wait_at(index, t);
    }
    if (!start(t.id, later(at(out).freed, at(in).freed))) return;
    at(out).free = at(in).free = false;
  }

  const Network& network_;
  int ranks_;
  std::vector<Port> ports_;  // out of ranks, into ranks
  IndexSet dirty_;           // that may start something
};

}  // namespace kvring
