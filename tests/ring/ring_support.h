// Rings of ranks as threads, each rank with tensors of its own: what a host program of the library does.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#include "kvring/error.h"
#include "kvring/ring.h"
#include "kvring/transport.h"
#include "tests/matrix/matrix.h"

namespace kvring::test {

using Transports = std::vector<std::unique_ptr<Transport>>;

// What became of a rank: the error it ended with, if any.
struct Ending {
  bool failed = false;
  bool typed = false;  // the error is one of kvring's
  ErrorCode code{};
  std::string message;
};

// Runs body(end) on a thread of its own for every end, each end destroyed with its thread. As in a program
// whose ranks do not know of each other, nobody tells the others of an error but the library.
inline std::vector<Ending> on_ranks(Transports ends, const std::function<void(Transport&)>& body) {
  std::vector<Ending> endings(ends.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&ending = endings[rank], &body, end = std::move(ends[rank])] {
      try {
        body(*end);
      } catch (const Error& error) {
        ending = {true, true, error.code(), error.what()};
      } catch (const std::exception& error) {
        ending = {true, false, {}, error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return endings;
}

inline constexpr double kDeadline = 60;  // seconds; far above what a loaded machine needs
// "Quickly": a peer's error ends a rank at once, not at the deadline.
inline constexpr double kQuickly = 20;

inline std::vector<Ending> on_ranks(int ranks, const std::function<void(Transport&)>& body) {
  return on_ranks(make_inproc_transports(ranks, kDeadline), body);
}

inline void expect_no_failure(const std::vector<Ending>& endings) {
  for (std::size_t rank = 0; rank < endings.size(); ++rank)
    EXPECT_FALSE(endings[rank].failed) << "rank " << rank << ": " << endings[rank].message;
}

class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The tensors of one rank, outputs poisoned.
struct LocalTensors {
  LocalTensors(const Problem& p, const Layouts& layouts, const Inputs& whole, int rank)
      : q_rows(layouts.q.shards[static_cast<std::size_t>(rank)]),
        kv_rows(layouts.kv.shards[static_cast<std::size_t>(rank)]),
        q(p.q_dtype, {p.batch, q_rows.tokens(), p.q_heads, p.head_dim}),
        k(p.kv_dtype, {p.batch, kv_rows.tokens(), p.kv_heads, p.head_dim}),
        v(p.kv_dtype, {p.batch, kv_rows.tokens(), p.kv_heads, p.value_dim}),
        out(p.out_dtype, {p.batch, q_rows.tokens(), p.q_heads, p.value_dim}),
        lse(DType::kF32, {p.batch, p.q_heads, q_rows.tokens(), 1}),
        sinks(whole.sinks_data()) {
    shard(whole.q.view(), q_rows, q.view());
    shard(whole.k.view(), kv_rows, k.view());
    shard(whole.v.view(), kv_rows, v.view());
  }

  LseView lse_view() {
    const TensorView t = lse.view();
    return dense_lse_view(static_cast<float*>(t.data), {t.shape[0], t.shape[1], t.shape[2]});
  }
  void attend(Ring& ring) {
    ring.attend(as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(), lse_view(), sinks);
  }
  // Puts this rank's rows into whole tensors.
  void collect(Result& whole) {
    unshard(as_const(out.view()), q_rows, whole.out.view());
    const LseView from = lse_view();
    const TensorView to = whole.lse.view();
    for (std::int64_t b = 0; b < from.shape[0]; ++b)
      for (std::int64_t h = 0; h < from.shape[1]; ++h)
        for (std::int64_t s = 0; s < from.shape[2]; ++s)
          static_cast<float*>(to.data)[to.offset(b, h, q_rows.position(s))] = from.data[from.offset(b, h, s)];
  }

  Shard q_rows, kv_rows;
  OwnedTensor q, k, v, out, lse;
  const float* sinks;
};

inline Result empty_result(const Problem& p) {
  return {OwnedTensor(p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim}),
          OwnedTensor(DType::kF32, {p.batch, p.q_heads, p.q_len, 1}),
          {}};
}

// One attend() of a ring with those layouts. The reports by rank are in Result::report.
inline Result run_ring(Transports ends, const Problem& p, const Layouts& layouts, const RingOptions& options,
                       const Inputs& in) {
  Result result = empty_result(p);
  result.report.per_rank.resize(ends.size());
  expect_no_failure(on_ranks(std::move(ends), [&](Transport& end) {
    Ring ring(p, layouts, options, end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    local.collect(result);
    result.report.per_rank[static_cast<std::size_t>(end.rank())] = ring.report();
    if (end.rank() == 0) result.report.bits_invariant = ring.bits_invariant();
  }));
  return result;
}

inline Result run_ring(const Problem& p, const Layouts& layouts, const RingOptions& options,
                       const Inputs& in) {
  return run_ring(make_inproc_transports(static_cast<int>(layouts.q.shards.size()), kDeadline), p, layouts,
                  options, in);
}

// What one rank computes: the bits that every ring must give.
inline Result one_rank(const Problem& p, const Inputs& in) {
  AttendOptions options;
  options.ring.threads = 1;
  return run_inproc(p, options, in);
}

inline RingOptions one_thread(std::int64_t heads_per_lap = 0) {
  RingOptions options;
  options.threads = 1;
  options.heads_per_lap = heads_per_lap;
  return options;
}

// A plain problem: full mask, f32, one sequence.
inline Problem plain_problem(std::int64_t tokens, std::int64_t tile) {
  Problem p;
  p.q_len = p.kv_len = tokens;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.head_dim = p.value_dim = 8;
  p.tile = tile;
  return p;
}

}  // namespace kvring::test
