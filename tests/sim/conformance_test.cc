// What every transport must do, done by the wire protocol in virtual time, over networks of several kinds.
#include "transport/conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "kvring/error.h"
#include "tests/sim/sim_wire.h"
#include "transport/wire/wire_transport.h"

namespace kvring::sim {
namespace {

using std::chrono::microseconds;

struct Kind {
  const char* name;
  std::size_t longest_eager;
  std::size_t largest_piece;
  Duration jitter;
};

class WireConformance : public testing::TestWithParam<Kind> {
 protected:
  // body(end) on every rank. The errors of kvring's that it threw, by rank.
  static std::vector<std::string> on_ranks(int ranks, const std::function<void(Transport&)>& body) {
    Scheduler scheduler(ranks, 1);
    NetworkOptions options;
    options.latency = microseconds(10);
    options.jitter = GetParam().jitter;
    options.longest_eager = GetParam().longest_eager;
    options.longest_nap = std::chrono::milliseconds(100);
    options.most_calls = 10'000'000;
    Network network(scheduler, ranks, options, {}, 2);
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    scheduler.run([&](int rank) {
      wire::WireTransport end(std::make_unique<SimWire>(network, rank),
                              {.deadline_s = 30, .thread = false, .largest_piece = GetParam().largest_piece});
      try {
        body(end);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
    return errors;
  }
};
INSTANTIATE_TEST_SUITE_P(, WireConformance,
                         testing::Values(Kind{"Eager", 1 << 30, 1 << 30, {}},
                                         Kind{"Rendezvous", 0, 1 << 30, microseconds(100)},
                                         Kind{"Pieces", 100, 64, microseconds(100)}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(WireConformance, BlocksVisitEveryRank) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::string& error : on_ranks(ranks, [](Transport& end) {
           for (const std::size_t bytes : {0, 1, 700})
             for (std::uint32_t lap = 0; lap < 3; ++lap) {
               conformance::rotate(end, lap, bytes);
               conformance::rotate_ahead(end, lap, bytes);
             }
         }))
      EXPECT_EQ(error, "") << ranks << " ranks";
  }
}

TEST_P(WireConformance, KeepsOrderAndGathers) {
  for (const int ranks : {1, 2, 4}) {
    for (const std::string& error : on_ranks(ranks, conformance::keeps_order))
      EXPECT_EQ(error, "") << ranks << " ranks";
    for (const std::string& error : on_ranks(ranks, [](Transport& end) {
           conformance::send_then_receive(end, 300);
           conformance::gathers(end);
         }))
      EXPECT_EQ(error, "") << ranks << " ranks";
  }
}

TEST_P(WireConformance, ThirtySecondsPassAtOnce) {
  const auto began = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = on_ranks(2, [](Transport& end) {
    std::vector<std::byte> buffer(8);
    if (end.rank() == 0) end.wait_receive(end.post_receive(1, buffer), "a block that nobody sends");
    if (end.rank() == 1) end.wait_receive(end.post_receive(0, buffer), "another");
  });
  EXPECT_NE(errors[0] + errors[1], "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

}  // namespace
}  // namespace kvring::sim
