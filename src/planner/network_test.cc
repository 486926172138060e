#include "planner/network.h"

#include <gtest/gtest.h>

#include "kvring/error.h"
#include "planner/test_support.h"

namespace kvring {
namespace {

TEST(Network, ARingCrossesNodesOnOneHopOfEachNode) {
  const Machine machine = round_machine();
  const Network network(machine, 12, 4);
  for (int from = 0; from < 12; ++from)
    EXPECT_DOUBLE_EQ(network.hop_s(from, 1e9), from % 4 == 3 ? 1.0 : 0.1) << from;
  const Hop hop = network.slowest_hop(1e9);
  EXPECT_EQ(hop.from, 3);
  EXPECT_EQ(hop.to, 4);
  EXPECT_TRUE(hop.between_nodes);
  EXPECT_DOUBLE_EQ(hop.seconds, 1);
}

TEST(Network, WithinANodeNothingCrosses) {
  const Machine machine = round_machine();
  const Hop hop = Network(machine, 4, 4).slowest_hop(1e9);
  EXPECT_FALSE(hop.between_nodes);
  EXPECT_DOUBLE_EQ(hop.seconds, 0.1);
  EXPECT_EQ(Network(machine, 1, 4).slowest_hop(1e9).seconds, 0);
}

TEST(Network, LatencyIsPaidPerMessage) {
  Machine machine = round_machine();
  machine.within_node.latency_s.value = 1e-3;
  machine.between_nodes->latency_s.value = 1e-2;
  EXPECT_DOUBLE_EQ(Network(machine, 4, 4).slowest_hop(0).seconds, 1e-3);
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).slowest_hop(0).seconds, 1e-2);
  // A gather by doubling: 2 rounds in a node of 4, then 1 between 2 nodes.
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).gather_s(0), 2e-3 + 1e-2);
  StepWork step;  // 3 messages within, 4 to the other node, at once
  step.near.count = 3;
  step.far.count = 4;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).step_s(step, 1, 0), 4e-2);
  step.far.count = 0;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).step_s(step, 1, 0), 3e-3);
}

TEST(Network, RanksOfANodeShareItsCards) {
  Machine machine = round_machine();
  StepWork step;
  step.near = {1, 1e9};
  step.far = {4, 4e9};
  step.node_bytes = 16e9;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).step_s(step, 2, 0), 32);
  machine.between_nodes->links.value = 4;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).step_s(step, 2, 0), 8);
  machine.within_node.bytes_per_s.value = 1e8;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).step_s(step, 2, 0), 20);
}

// Nine tenths of the link within a node while ranks compute, a half between nodes.
TEST(Network, BesideComputingAMessageHasAShareOfItsLink) {
  Machine machine = round_machine();
  StepWork step;
  step.near = {1, 9e9};
  const auto takes = [&](double computing_s) { return Network(machine, 8, 4).step_s(step, 1, computing_s); };
  EXPECT_DOUBLE_EQ(takes(10), 0.9);
  machine.within_node.computing_bytes_per_s.value = 9e9;
  machine.between_nodes->computing_bytes_per_s.value = 5e8;
  EXPECT_DOUBLE_EQ(takes(0), 0.9);
  EXPECT_DOUBLE_EQ(takes(0.5), 0.9 + 0.1 * 0.5);
  EXPECT_DOUBLE_EQ(takes(1), 1);
  EXPECT_DOUBLE_EQ(takes(10), 1);
  step.far = {1, 1e9};
  step.node_bytes = 1e9;
  EXPECT_DOUBLE_EQ(takes(0.5), 1 + 0.5 * 0.5);
  EXPECT_DOUBLE_EQ(takes(10), 2);
}

TEST(Network, AMachineWithoutLinksBetweenNodesEndsAtItsNode) {
  Machine machine = round_machine();
  machine.between_nodes.reset();
  EXPECT_NO_THROW(Network(machine, 4, 4));
  EXPECT_THROW(Network(machine, 5, 4), InvalidArgument);
}

}  // namespace
}  // namespace kvring
