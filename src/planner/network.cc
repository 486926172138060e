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
  for (int from = 0; from < ranks_; ++from) {
    const double seconds = hop_s(from, bytes);
    if (seconds <= slowest.seconds) continue;
    const int to = (from + 1) % ranks_;
    slowest = {from, to, crosses(from, to), seconds};
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

double Network::all_to_all_s(double bytes) const {
  if (ranks_ == 1) return 0;
  const int near = std::min(ranks_, per_node_) - 1, far = ranks_ - 1 - near;
  const double part = bytes / ranks_;
  const double within = near * (machine_.within_node.latency_s.value + part / hop_bytes_per_s(false));
  if (far == 0) return within;
  const double share = std::min(1.0, machine_.between_nodes->links.value / per_node_);
  const double between = far * (link(true).latency_s.value + part / (link(true).bytes_per_s.value * share));
  return std::max(within, between);
}

double Network::tree_s(double bytes) const {
  if (ranks_ == 1) return 0;
  double seconds = rounds(std::min(ranks_, per_node_)) * message_s(false, bytes / bus_share_);
  if (crosses_nodes()) seconds += rounds((ranks_ + per_node_ - 1) / per_node_) * message_s(true, bytes);
  return seconds;
}

}  // namespace kvring
