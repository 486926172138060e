#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvring::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::Rng;

Duration share_of(Duration whole, double share) {
  return Duration(static_cast<Duration::rep>(share * static_cast<double>(whole.count())));
}

Duration deadline_of(const World& world) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(world.deadline_s));
}

Problem make_problem(Rng& rng, int ranks) {
  Problem p = test::random_masked_problem(rng, ranks * 5);
  p.kv_heads = rng.between(1, 2);
  p.q_heads = p.kv_heads * rng.between(1, 2);
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  p.kv_dtype = kTypes[rng.between(0, 2)];
  p.tile = rng.between(1, 4);
  return p;
}

NetworkOptions make_network(Rng& rng, Duration deadline) {
  constexpr std::size_t kEager[] = {0, 60, 100, 1 << 20};
  NetworkOptions options;
  options.latency = microseconds(rng.chance(0.5) ? rng.between(1, 50) : rng.between(100, 3000));
  options.jitter = microseconds(rng.chance(0.5) ? rng.between(0, 50) : rng.between(0, 4000));
  options.ns_per_byte = rng.chance(0.5) ? 1 : static_cast<double>(rng.between(0, 3000));
  options.longest_eager = kEager[rng.between(0, 3)];
  options.longest_nap = deadline / 64;
  options.reports_crashes = rng.chance(0.2);
  options.most_calls = 3'000'000;
  return options;
}

LayoutSpec make_spec(Rng& rng) {
  constexpr LayoutKind kKinds[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};
  return {.kind = kKinds[rng.between(0, 2)], .stripe = 0, .cut = Cut::kTiles};
}

// More or less than the deadline, with a margin for what else takes time.
Duration shorter(Rng& rng, Duration deadline) { return share_of(deadline, 0.02 + 0.28 * rng.uniform()); }
Duration longer(Rng& rng, Duration deadline) { return share_of(deadline, 1.5 + 2 * rng.uniform()); }

Fault draw_fault(Rng& rng, const World& world, const Rehearsal& rehearsal) {
  const Duration deadline = deadline_of(world);
  Fault fault;
  fault.kind = static_cast<FaultKind>(rng.between(0, kFaultKinds - 1));
  fault.message_class = static_cast<Class>(rng.between(0, kClasses - 1));
  if (fault.of_block()) fault.message_class = Class::kHeader;
  const std::uint64_t sent = rehearsal.sent[static_cast<std::size_t>(fault.message_class)];
  fault.index = rng.next() % std::max<std::uint64_t>(1, sent);
  // The first bytes of headers and notes say what they are: half of all flips go there.
  fault.detail = rng.chance(0.5) ? rng.next() % 128 : rng.next();
  fault.rank = static_cast<int>(rng.between(0, world.ranks - 1));
  fault.peer = static_cast<int>((fault.rank + rng.between(1, world.ranks - 1)) % world.ranks);
  fault.at = kStart + share_of(rehearsal.length, rng.uniform());
  switch (fault.kind) {
    case FaultKind::kStall:
      fault.length = longer(rng, deadline);
      break;
    case FaultKind::kCrash:
    case FaultKind::kCut:
    case FaultKind::kIsolate:
      fault.length = Duration::max();
      break;
    default:
      fault.length = shorter(rng, deadline);
  }
  return fault;
}

}  // namespace

World make_world(std::uint64_t seed) {
  Rng rng(seed);
  World world;
  world.seed = seed;
  world.ranks = static_cast<int>(rng.between(2, rng.chance(0.3) ? 8 : 5));
  world.calls = static_cast<int>(rng.between(1, 2));
  world.problem = make_problem(rng, world.ranks);
  world.layouts = make_layouts(make_spec(rng), world.problem, world.ranks);
  world.heads_per_lap = rng.between(1, world.problem.kv_heads);
  constexpr double kDeadlines[] = {0.5, 1, 3, 30};
  world.deadline_s = kDeadlines[rng.between(0, 3)];
  world.largest_piece = static_cast<std::size_t>(rng.between(16, 400));
  const Duration deadline = deadline_of(world);
  world.network = make_network(rng, deadline);
  // Slow enough now and then that heartbeats are sent without a fault; never so slow that a rank cannot
  // answer in time.
  const Duration pace = share_of(std::min<Duration>(deadline, milliseconds(500)), 0.02 * rng.uniform());
  for (int rank = 0; rank < world.ranks; ++rank)
    world.pace.push_back(share_of(pace, 0.1 + 0.9 * rng.uniform()));
  return world;
}

std::vector<Fault> draw_faults(const World& world, const Rehearsal& rehearsal) {
  Rng rng(world.seed ^ 0xfa17);
  std::vector<Fault> faults;
  const std::int64_t count = rng.chance(0.7) ? 1 : rng.between(0, 3);
  for (std::int64_t i = 0; i < count; ++i) {
    Fault fault = draw_fault(rng, world, rehearsal);
    // A rank has one outage; and what delays messages could add up to more than the deadline.
    const auto clashes = [&](const Fault& other) {
      if (fault.of_rank() && other.of_rank()) return fault.rank == other.rank;
      return fault.harmless() && other.harmless();
    };
    if (std::ranges::none_of(faults, clashes)) faults.push_back(fault);
  }
  // Heartbeats, and what becomes of them, are of interest where somebody waits for long.
  if (count == 1 && faults[0].message_class == Class::kControl && faults[0].of_message()) {
    Fault pause;
    pause.kind = FaultKind::kPause;
    pause.rank = static_cast<int>(rng.between(0, world.ranks - 1));
    pause.at = kStart + share_of(rehearsal.length, rng.uniform());
    pause.length = share_of(deadline_of(world), 0.15 + 0.15 * rng.uniform());
    faults.push_back(pause);
    faults[0].index = rng.next() % static_cast<std::uint64_t>(world.ranks * (world.ranks - 1));
  }
  return faults;
}

// News of progress comes with a heartbeat, every tenth of the deadline, and is noted to a hundredth of it.
// After its deadline a rank waits for answers, half a second at most. Each may be noticed a nap too late.
Duration longest_end(const World& world) {
  const Duration deadline = deadline_of(world);
  const NetworkOptions& network = world.network;
  const Duration transfer(static_cast<Duration::rep>(network.ns_per_byte * 4096));
  return deadline + deadline / 10 + deadline / 100 + std::min<Duration>(milliseconds(500), deadline) +
         4 * network.longest_nap + 3 * (network.latency + network.jitter + transfer);
}

std::string describe(const World& w) {
  return fmt::format(
      "seed {}: {} ranks, {} calls, {} laps of {} heads, deadline {} s, latency {} us + {} us, {} ns/byte, "
      "eager to {} bytes, pieces of {} bytes{}\n  {}",
      w.seed, w.ranks, w.calls, w.problem.kv_heads, w.heads_per_lap, w.deadline_s,
      w.network.latency.count() / 1000, w.network.jitter.count() / 1000, w.network.ns_per_byte,
      w.network.longest_eager, w.largest_piece, w.network.reports_crashes ? ", crashes are reported" : "",
      test::describe(w.problem));
}

}  // namespace kvring::sim
