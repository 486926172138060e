// How long messages take between the ranks of a ring.
#pragma once

#include <algorithm>
#include <cstdint>

#include "planner/machine.h"
#include "planner/work.h"

namespace kvring {

struct Hop {
  int from = 0;
  int to = 0;
  bool between_nodes = false;
  double seconds = 0;
};

// A transfer that alone takes `alone_s`, where ranks compute for `computing_s` from its beginning on and
// leave it so much `share` of its link.
inline double beside_computing_s(double alone_s, double share, double computing_s) {
  // Over before the computing is, or behind by what it did not get until then.
  return std::min(alone_s / share, alone_s + (1 - share) * computing_s);
}

// Ranks 0 .. ranks - 1 of a ring, `per_node` neighbours on each node. The machine must outlive it.
class Network {
 public:
  // Throws InvalidArgument where the ring leaves the node and the machine has no links between nodes.
  Network(const Machine& machine, int ranks, int per_node);

  int ranks() const noexcept { return ranks_; }
  int per_node() const noexcept { return per_node_; }
  bool crosses_nodes() const noexcept { return ranks_ > per_node_; }
  bool crosses(int from, int to) const noexcept { return from / per_node_ != to / per_node_; }

  // Whether transfers within a node share what there is: in a ring all its ranks send at once.
  bool shares_bus() const noexcept { return bus_share_ < 1; }
  // Alone on its link.
  double message_s(bool between_nodes, double bytes) const;
  // A message from a rank to the next. In a ring each node sends one block at a time to the next node, so a
  // crossing hop has a whole link to itself.
  double hop_s(int from, double bytes) const;
  double hop_bytes_per_s(bool between_nodes) const;
  // The slowest hop of the ring beside computing, with what it takes alone; seconds 0 in a ring of one.
  Hop slowest_hop(double bytes) const;

  // `rounds_bytes` per rank pass through the slowest link, in log2 P messages: an all-gather by doubling.
  double gather_s(double bytes) const;
  // Of a hop that does or does not cross nodes.
  const Link& link(bool between_nodes) const;
  // The share of a link's speed that a message has while ranks compute.
  double busy_share(bool between_nodes) const;
  // beside_computing_s() of a message over such a link.
  double beside_s(bool between_nodes, double alone_s, double computing_s) const;
  // All transfers of a step, `units` KV heads of each, beside its computing: they share the links in and out
  // of a rank and of a node, and each message has its latency.
  double step_s(const StepWork& work, double units, double computing_s) const;
  // What the step's transfers take from its computing.
  double computing_s(const StepWork& work, double units) const;

 private:
  const Machine& machine_;
  int ranks_;
  int per_node_;
  double bus_share_ = 1;  // of the full speed, where all ranks of a node send to each other
};

}  // namespace kvring
