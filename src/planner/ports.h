// Which transfers of a simulated network may move at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/index_set.h"
#include "planner/moment.h"
#include "planner/network.h"

namespace kvring {

// A rank has one port out and one in within its node, and one of each to other nodes; a node has as many
// links out and in as the machine says. A transfer holds what it needs of them until its end, others wait
// their turn. So what a rank sends in a step takes the sum of its messages, as the planner prices it.
class Ports {
 public:
  Ports(const Network& network, int node_links)
      : network_(network),
        ranks_(network.ranks()),
        nodes_((ranks_ + network.per_node() - 1) / network.per_node()),
        ports_(static_cast<std::size_t>(4 * ranks_ + 2 * nodes_)),
        dirty_(ports_.size()) {
    const auto nodes = static_cast<std::size_t>(nodes_);
    for (std::size_t i = ports_.size() - 2 * nodes; i < ports_.size(); ++i) ports_[i].free = node_links;
  }

  // Transfer `id` can move from now on; of a rank's transfers the one of lowest `order` has its turn first.
  void want(int id, int from, int to, std::uint64_t order) {
    wait_at(route(from, to).front(), {order, id, from, to});
  }
  // The transfer is over, and led to that moment.
  void release(int from, int to, const Moment& now) {
    for (const std::int32_t index : route(from, to)) {
      Port& port = at(index);
      ++port.free;
      port.freed = now;
      dirty_.insert(static_cast<std::size_t>(index));
    }
  }
  // Calls start(id, moment) for every transfer whose turn it is, with the last moment that it waited for.
  template <typename Start>
  void start_all(Start start) {
    dirty_.drain([&](std::size_t index) {
      Port& port = ports_[index];
      while (port.free > 0 && !port.waiting.empty()) {
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
    int free = 1;
    Moment freed;
    std::vector<Waiting> waiting;  // a heap
  };

  // What a transfer needs; valid until the next call.
  std::span<const std::int32_t> route(int from, int to) {
    const bool far = network_.crosses(from, to);
    const int nodes = 4 * ranks_, per_node = network_.per_node();
    route_ = {2 * from + (far ? 1 : 0), 2 * (ranks_ + to) + (far ? 1 : 0), nodes + from / per_node,
              nodes + nodes_ + to / per_node};
    return std::span(route_).first(far ? 4 : 2);
  }
  Port& at(std::int32_t index) { return ports_[static_cast<std::size_t>(index)]; }
  void wait_at(std::int32_t index, const Waiting& waiting) {
    Port& port = at(index);
    port.waiting.push_back(waiting);
    std::push_heap(port.waiting.begin(), port.waiting.end(), Later());
    // While transfers start, none waits at a port that is free.
    if (port.free > 0) dirty_.insert(static_cast<std::size_t>(index));
  }
  template <typename Start>
  void try_start(const Waiting& t, Start start) {
    const std::span<const std::int32_t> needed = route(t.from, t.to);
    for (const std::int32_t index : needed) {
      if (at(index).free == 0) return wait_at(index, t);
    }
    const Moment* latest = &at(needed.front()).freed;
    for (const std::int32_t index : needed) latest = &later(*latest, at(index).freed);
    if (!start(t.id, *latest)) return;
    for (const std::int32_t index : needed) --at(index).free;
  }

  const Network& network_;
  int ranks_, nodes_;
  std::vector<Port> ports_;  // out of ranks, into ranks, out of nodes, into nodes
  IndexSet dirty_;           // that may start something
  std::array<std::int32_t, 4> route_{};
};

}  // namespace kvring
