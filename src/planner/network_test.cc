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
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).tree_s(0), 2e-3 + 1e-2);
  EXPECT_DOUBLE_EQ(Network(machine, 5, 4).tree_s(0), 2e-3 + 1e-2);
  // An exchange: 3 messages within, 4 to the other node, at once.
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).all_to_all_s(0), 4e-2);
}

TEST(Network, RanksOfANodeShareItsCardsInAnExchange) {
  Machine machine = round_machine();
  // 1/8 of 8 GB to each of 4 far ranks, over a quarter of a card.
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).all_to_all_s(8e9), 16);
  machine.between_nodes->links.value = 4;
  EXPECT_DOUBLE_EQ(Network(machine, 8, 4).all_to_all_s(8e9), 4);
  EXPECT_DOUBLE_EQ(Network(machine, 4, 4).all_to_all_s(4e9), 0.3);
}

TEST(Network, AMachineWithoutLinksBetweenNodesEndsAtItsNode) {
  Machine machine = round_machine();
  machine.between_nodes.reset();
  EXPECT_NO_THROW(Network(machine, 4, 4));
  EXPECT_THROW(Network(machine, 5, 4), InvalidArgument);
}

}  // namespace
}  // namespace kvring
