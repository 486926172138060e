#include "cli/bench/ring_run.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/bench/random_tensor.h"

namespace kvring::cli {
namespace {

// One rank's tensors and its member of the ring, which must be destroyed on the rank's own thread.
class RankRun {
 public:
  RankRun(const Setup& setup, Transport& transport)
      : ring_(setup.problem, setup.layouts, setup.ring, transport),
        q_(setup.problem.q_dtype, q_shape(setup, transport, setup.problem.head_dim), 1),
        k_(setup.problem.kv_dtype, kv_shape(setup, transport, setup.problem.head_dim), 2),
        v_(setup.problem.kv_dtype, kv_shape(setup, transport, setup.problem.value_dim), 3),
        out_(setup.problem.out_dtype, q_shape(setup, transport, setup.problem.value_dim), 4) {}

  void attend() { ring_.attend(as_const(q_.view()), as_const(k_.view()), as_const(v_.view()), out_.view()); }
  Ring& ring() { return ring_; }

 private:
  static std::size_t rank(const Transport& t) { return static_cast<std::size_t>(t.rank()); }
  static std::array<std::int64_t, 4> q_shape(const Setup& s, const Transport& t, std::int64_t dim) {
    return {s.problem.batch, s.layouts.q.shards[rank(t)].tokens(), s.problem.q_heads, dim};
  }
  static std::array<std::int64_t, 4> kv_shape(const Setup& s, const Transport& t, std::int64_t dim) {
    return {s.problem.batch, s.layouts.kv.shards[rank(t)].tokens(), s.problem.kv_heads, dim};
  }

  Ring ring_;  // first: a rank that would not fit is refused before it takes memory
  RandomTensor q_, k_, v_, out_;
};

// What one rank measured, by repeat.
struct RankTimes {
  std::vector<double> wall_s, cpu_s;
  std::vector<RankReport> reports;
};

RankTimes time_rank(RankRun& run, Transport& transport, int repeats) {
  RankTimes times;
  for (int i = 0; i <= repeats; ++i) {
    transport.barrier("the start of a run");
    Sample sample;
    // The process is timed to the end of the slowest rank, the rank to its own.
    const Sample whole = time_work(
        [&] {
          sample = time_work([&] { run.attend(); }, 1);
          transport.barrier("the end of a run");
        },
        1);
    if (i == 0) continue;
    times.wall_s.push_back(sample.wall_s);
    times.cpu_s.push_back(whole.cpu_s);
    times.reports.push_back(run.ring().report());
  }
  return times;
}

RingSamples join(const std::vector<RankTimes>& ranks) {
  RingSamples all;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < ranks[0].wall_s.size(); ++i) {
    Sample sample{0, ranks[0].cpu_s[i]};
    for (const RankTimes& rank : ranks) sample.wall_s = std::max(sample.wall_s, rank.wall_s[i]);
    all.samples.push_back(sample);
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return all.samples[a].wall_s < all.samples[b].wall_s; });
  const std::size_t typical = order[(order.size() - 1) / 2];
  for (const RankTimes& rank : ranks) all.per_rank.push_back(rank.reports[typical]);
  return all;
}

}  // namespace

RingSamples time_ring(const Setup& setup, Team& team, int repeats,
                      const std::function<void(double)>& progress) {
  const auto ranks = static_cast<std::size_t>(team.ranks());
  std::vector<std::unique_ptr<RankRun>> runs(ranks);
  std::vector<RankTimes> times(ranks);
  bool bits_invariant = true;
  team.run({[] {},
            [&](Transport& transport) {
              const auto rank = static_cast<std::size_t>(transport.rank());
              runs[rank] = std::make_unique<RankRun>(setup, transport);
              RankRun& run = *runs[rank];
              int finished = 0;
              if (rank == 0) {
                bits_invariant = run.ring().bits_invariant();
                run.ring().set_progress([&, before = 0.0](double share) mutable {
                  if (share < before) ++finished;
                  before = share;
                  progress(std::min(1.0, (finished + share) / (repeats + 1)));
                });
              }
              times[rank] = time_rank(run, transport, repeats);
            },
            {},
            [&](Transport& transport) { runs[static_cast<std::size_t>(transport.rank())].reset(); }});
  RingSamples all = join(times);
  all.bits_invariant = bits_invariant;
  return all;
}

}  // namespace kvring::cli
