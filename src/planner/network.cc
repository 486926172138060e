#include "planner/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kvring/error.h"

namespace kvring {
namespace {

int rounds(int members) { return std::bit_width(static_cast<unsigned>(std::max(members - 1, 0))); }

}  // namespace

Network::Network(const Machine& machine, int ranks, int per_node)
    : machine_(machine), ranks_(ranks), per_node_(per_node) {
  if (crosses_nodes() && !machine.between_nodes)
    throw InvalidArgument(fmt::format("machine {} has no links between nodes: at most {} ranks, not {}",
                                      machine.name, per_node, ranks));
  if (machine.within_node_links.value > 0)
    bus_share_ = std::min(1.0, machine.within_node_links.value / std::min(ranks, per_node));
}

double Network::hop_s(int from, double bytes) const {
  const bool far = crosses(from, (from + 1) % ranks_);
  return link(far).latency_s.value + bytes / hop_bytes_per_s(far);
}

double Network::hop_bytes_per_s(bool between_nodes) const {
  return link(between_nodes).bytes_per_s.value * (between_nodes ? 1 : bus_share_);
}

const Link& Network::link(bool between_nodes) const {
  return between_nodes ? static_cast<const Link&>(*machine_.between_nodes) : machine_.within_node;
}

double Network::message_s(bool between_nodes, double bytes) const {
  const Link& l = link(between_nodes);
  return l.latency_s.value + bytes / l.bytes_per_s.value;
}

Hop Network::slowest_hop(double bytes) const {
  Hop slowest;
  if (ranks_ == 1) return slowest;
  double most_s = 0;
  for (int from = 0; from < ranks_; ++from) {
    const int to = (from + 1) % ranks_;
    const double busy_s = hop_s(from, bytes) / busy_share(crosses(from, to));
    if (busy_s <= most_s) continue;
    most_s = busy_s;
    slowest = {from, to, crosses(from, to), hop_s(from, bytes)};
  }
  return slowest;
}

double Network::gather_s(double bytes) const {
  if (ranks_ == 1) return 0;
  double seconds = bytes / hop_bytes_per_s(false);
  double latency = rounds(std::min(ranks_, per_node_)) * machine_.within_node.latency_s.value;
  if (crosses_nodes()) {
    seconds = std::max(seconds, bytes / link(true).bytes_per_s.value);
    latency += rounds((ranks_ + per_node_ - 1) / per_node_) * link(true).latency_s.value;
  }
  return latency + seconds;
}

double Network::busy_share(bool between_nodes) const {
  const Link& l = link(between_nodes);
  return l.computing_bytes_per_s.value > 0 ? l.computing_bytes_per_s.value / l.bytes_per_s.value : 1;
}

double Network::beside_s(bool between_nodes, double alone_s, double computing_s) const {
  return beside_computing_s(alone_s, busy_share(between_nodes), computing_s);
}

double Network::step_s(const StepWork& work, double units, double computing_s) const {
  const double near = static_cast<double>(work.near.count) * machine_.within_node.latency_s.value +
                      units * work.near.bytes / hop_bytes_per_s(false);
  const double near_s = beside_s(false, near, computing_s);
  if (work.far.count == 0) return near_s;
  const Link& out = link(true);
  const double node_links = machine_.between_nodes->links.value;
  const double bytes = units * std::max(work.far.bytes, work.node_bytes / node_links);
  const double far =
      static_cast<double>(work.far.count) * out.latency_s.value + bytes / out.bytes_per_s.value;
  return std::max(near_s, beside_s(true, far, computing_s));
}

double Network::computing_s(const StepWork& work, double units) const {
  const double near_s = machine_.within_node.computing_s_per_byte.value;
  if (work.far.count == 0) return units * work.near.bytes * near_s;
  const double far_s = link(true).computing_s_per_byte.value;
  // No rank has more than both, nor more than all its bytes over the dearer link.
  return units * std::min(work.near.bytes * near_s + work.far.bytes * far_s,
                          work.rank_bytes * std::max(near_s, far_s));
}

}  // namespace kvring
