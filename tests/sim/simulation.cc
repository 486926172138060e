#include "tests/sim/simulation.h"

#include <algorithm>
#include <memory>

#include "kvring/ring.h"
#include "tests/ring/ring_support.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_wire.h"
#include "transport/wire/wire_transport.h"

namespace kvring::sim {
namespace {

// The rows of one rank, of what one rank computed.
bool has_right_bits(const World& world, const test::LocalTensors& local, const test::Inputs& inputs,
                    const test::Result& expected, int rank) {
  test::LocalTensors right(world.problem, world.layouts, inputs, rank);
  shard(as_const(const_cast<test::Result&>(expected).out.view()), right.q_rows, right.out.view());
  if (!(right.out == local.out)) return false;
  const LseView lse = right.lse_view();
  const TensorView whole = const_cast<test::Result&>(expected).lse.view();
  for (std::int64_t b = 0; b < lse.shape[0]; ++b)
    for (std::int64_t h = 0; h < lse.shape[1]; ++h)
      for (std::int64_t s = 0; s < lse.shape[2]; ++s)
        lse.data[lse.offset(b, h, s)] =
            static_cast<const float*>(whole.data)[whole.offset(b, h, right.q_rows.position(s))];
  return right.lse == local.lse;
}

class Simulation {
 public:
  Simulation(const World& world, const Expected& expected, const std::vector<Fault>& faults)
      : world_(world),
        expected_(expected),
        scheduler_(world.ranks, world.seed ^ 0x5c4ed),
        network_(scheduler_, world.ranks, world.network, faults, world.seed ^ 0x4e7),
        pace_(world.seed ^ 0xace) {
    for (const Fault& fault : faults)
      if (fault.of_rank()) scheduler_.plan_outage(fault.rank, {fault.at, fault.length});
    run_.ends.resize(static_cast<std::size_t>(world.ranks));
  }

  Run run(const std::vector<Fault>& faults) {
    scheduler_.run([this](int rank) { live(rank); });
    run_.fired = network_.injector().fired();
    Time last_end = kStart;
    for (const RankEnd& end : run_.ends)
      if (!end.crashed) last_end = std::max(last_end, end.ended);
    run_.last_progress = std::max({last_progress_, network_.last_delivery(), scheduler_.last_outage_end()});
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const Fault& fault = faults[i];
      if (!fault.of_rank() && !fault.of_link()) continue;
      run_.fired[i] = fault.kind == FaultKind::kCrash ? scheduler_.crashed(fault.rank) : fault.at < last_end;
      if (run_.fired[i] && fault.of_link() && fault.length != Duration::max())
        run_.last_progress = std::max(run_.last_progress, fault.at + fault.length);
    }
    Time last_return = kStart;
    for (const RankEnd& end : run_.ends)
      if (!end.crashed) last_return = std::max(last_return, end.came);
    run_.measured = {last_return - kStart, network_.injector().sent()};
    run_.hung = network_.calls() > world_.network.most_calls;
    run_.digest = scheduler_.digest();
    run_.events = scheduler_.events();
    return std::move(run_);
  }

 private:
  RankEnd& end(int rank) { return run_.ends[static_cast<std::size_t>(rank)]; }

  void live(int rank) {
    std::unique_ptr<wire::WireTransport> transport;
    try {
      transport = std::make_unique<wire::WireTransport>(
          std::make_unique<SimWire>(network_, rank),
          wire::WireOptions{
              .deadline_s = world_.deadline_s, .thread = false, .largest_piece = world_.largest_piece});
      use(rank, *transport);
      end(rank).returned = true;
    } catch (const Error& error) {
      end(rank).code = error.code();
      end(rank).error = error.what();
    } catch (const std::exception& error) {
      end(rank).error = error.what();
    }
    end(rank).came = network_.now();
    if (transport) end(rank).verdict = transport->verdict();
    transport.reset();
    end(rank).ended = network_.now();
    end(rank).crashed = scheduler_.crashed(rank);
    scheduler_.log(static_cast<std::uint64_t>(end(rank).right) * 2 + (end(rank).returned ? 1 : 0));
  }

  // What a host program does.
  void use(int rank, Transport& transport) {
    RingOptions options;
    options.threads = 1;
    options.heads_per_lap = world_.heads_per_lap;
    Ring ring(world_.problem, world_.layouts, options, transport);
    ring.set_progress([this, rank](double) { compute(rank); });
    for (int call = 0; call < world_.calls; ++call) {
      const auto i = static_cast<std::size_t>(call);
      test::LocalTensors local(world_.problem, world_.layouts, expected_.inputs[i], rank);
      local.attend(ring);
      const bool right = has_right_bits(world_, local, expected_.inputs[i], expected_.results[i], rank);
      ++(right ? end(rank).right : end(rank).wrong);
    }
    transport.barrier("the end");
  }

  void compute(int rank) {
    const Duration most = world_.pace[static_cast<std::size_t>(rank)];
    scheduler_.sleep(rank, Duration(pace_.between(0, most.count())));
    if (!scheduler_.crashed(rank)) last_progress_ = network_.now();
  }

  const World& world_;
  const Expected& expected_;
  Scheduler scheduler_;
  Network network_;
  test::Rng pace_;
  Run run_;
  Time last_progress_ = kStart;
};

}  // namespace

Expected expect(const World& world) {
  test::Rng rng(world.seed ^ 0xda7a);
  Expected expected;
  for (int call = 0; call < world.calls; ++call) {
    expected.inputs.push_back(test::random_inputs(rng, world.problem));
    expected.results.push_back(test::one_rank(world.problem, expected.inputs.back()));
  }
  return expected;
}

Run simulate(const World& world, const Expected& expected, const std::vector<Fault>& faults) {
  return Simulation(world, expected, faults).run(faults);
}

}  // namespace kvring::sim
