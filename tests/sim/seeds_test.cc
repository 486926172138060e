// Random rings with random faults: a thousand in an ordinary build, fewer where a run is slow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/tally.h"
#include "tests/sim/trial.h"

namespace kvring::sim {
namespace {

TEST(Simulation, EverySeedEndsRight) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < KVRING_SIM_SEEDS; ++seed) {
    const Trial trial = try_seed(seed);
    tally.add(trial);
    EXPECT_TRUE(trial.wrong.empty()) << describe(trial) << "again: kvring_sim --seeds 1 --verbose --first "
                                     << seed;
  }
  fmt::print("{}", tally.table());
  if (KVRING_SIM_SEEDS < 1000) return;
  // No kind of fault is only on paper.
  for (std::size_t kind = 0; kind < kFaultKinds; ++kind)
    for (std::size_t c = 0; c < kClasses; ++c) {
      Fault fault;
      fault.kind = static_cast<FaultKind>(kind);
      fault.message_class = static_cast<Class>(c);
      EXPECT_GT(tally.met(fault), 0u) << name_of(fault);
    }
}

TEST(Simulation, ASeedIsOneRun) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Trial first = try_seed(seed), again = try_seed(seed);
    EXPECT_EQ(first.run.digest, again.run.digest) << "seed " << seed;
    EXPECT_EQ(describe(first), describe(again));
  }
}

TEST(Simulation, SeedsDiffer) { EXPECT_NE(try_seed(1).run.digest, try_seed(2).run.digest); }

}  // namespace
}  // namespace kvring::sim
