// The hall: problem, layout and schedule meet kernel and transport, for whole tensors in one process.
#include "kvring/attend.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <thread>

#include "kvring/error.h"
#include "runtime/failure.h"
#include "runtime/rank_tensors.h"
#include "tensor/buffer.h"

namespace kvring {
namespace {

// A dense copy of the rows of a shard, as the rank would hold them on its own machine.
class LocalTensor {
 public:
  LocalTensor(std::array<std::int64_t, 4> whole, DType dtype, const Shard& rows)
      : memory_(whole[0] * rows.tokens() * whole[2] * whole[3] *
                static_cast<std::int64_t>(dtype_bytes(dtype))),
        view_(dense_view<void>(memory_.data(), dtype, {whole[0], rows.tokens(), whole[2], whole[3]})) {}
  const TensorView& view() const noexcept { return view_; }

 private:
  AlignedBuffer memory_;
  TensorView view_;
};

LocalTensor local_copy(const ConstTensorView& whole, const Shard& rows) {
  LocalTensor local(whole.shape, whole.dtype, rows);
  shard(whole, rows, local.view());
  return local;
}

void scatter_lse(const float* local, const Shard& rows, const LseView& whole) {
  for (std::int64_t b = 0; b < whole.shape[0]; ++b) {
    for (std::int64_t h = 0; h < whole.shape[1]; ++h) {
      for (const Range& range : rows.ranges()) {
        for (std::int64_t s = range.begin; s < range.end; ++s) whole.data[whole.offset(b, h, s)] = *local++;
      }
    }
  }
}

// Whether the shard is the whole tensor as it lies: one rank needs no copies.
bool is_all(const Shard& shard, std::int64_t tokens) {
  const std::vector<Range>& ranges = shard.ranges();
  return shard.tokens() == tokens && ranges.size() <= 1 && (ranges.empty() || ranges[0].begin == 0);
}

RankReport attend_shard(Ring& ring, const RankTensors& t, const Shard& q_rows, const Shard& kv_rows) {
  if (is_all(q_rows, t.q.shape[1]) && is_all(kv_rows, t.k.shape[1])) {
    ring.attend(t.q, t.k, t.v, t.out, t.lse, t.sinks);
    return ring.report();
  }
  const LocalTensor q = local_copy(t.q, q_rows), k = local_copy(t.k, kv_rows), v = local_copy(t.v, kv_rows);
  const LocalTensor out(t.out.shape, t.out.dtype, q_rows);
  const std::array<std::int64_t, 3> lse_shape{t.q.shape[0], t.q.shape[2], q_rows.tokens()};
  AlignedBuffer lse(lse_shape[0] * lse_shape[1] * lse_shape[2] * 4);
  auto* lse_data = reinterpret_cast<float*>(lse.data());
  ring.attend(as_const(q.view()), as_const(k.view()), as_const(v.view()), out.view(),
              dense_lse_view(lse_data, lse_shape), t.sinks);
  unshard(as_const(out.view()), q_rows, t.out);
  if (t.lse.data) scatter_lse(lse_data, q_rows, t.lse);
  return ring.report();
}

// The error that explains the others: what one rank alone ran into, before what its end did to the rest.
void rethrow_cause(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr cause;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    if (!cause) cause = error;
    try {
      std::rethrow_exception(error);
    } catch (const TransportError&) {
    } catch (const std::bad_alloc&) {
      throw OutOfBudget(
          "this machine has not enough memory for all ranks; fewer heads_per_lap would need less");
    } catch (...) {
      std::rethrow_exception(error);
    }
  }
  if (cause) std::rethrow_exception(cause);
}

// Runs run_rank(rank) for every rank, rank 0 on this thread, and rethrows what went wrong. Whatever that is,
// every rank has ended by then.
void run_team(const std::vector<std::unique_ptr<Transport>>& transports,
              const std::function<void(std::size_t)>& run_rank) {
  const std::size_t ranks = transports.size();
  std::vector<std::exception_ptr> errors(ranks);
  // Nobody begins before all threads are there: where making them takes the last of the memory, no rank may
  // be in the middle of something.
  enum Gate { kWait, kRun, kLeave };
  std::atomic<Gate> gate{kWait};
  const auto guarded = [&](std::size_t rank) {
    gate.wait(kWait);
    if (gate == kLeave) return;
    try {
      run_rank(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
      transports[rank]->fail(current_failure());
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  try {
    for (std::size_t rank = 1; rank < ranks; ++rank) threads.emplace_back(guarded, rank);
    gate = kRun;
  } catch (...) {  // std::system_error, or std::bad_alloc for a thread's own state
    gate = kLeave;
  }
  gate.notify_all();
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  if (gate == kLeave) {
    throw OutOfBudget(
        fmt::format("this machine gives no more than {} threads for {} ranks", threads.size(), ranks));
  }
  rethrow_cause(errors);
}

}  // namespace

AttendReport attend(const Problem& problem, const AttendOptions& options, const ConstTensorView& q,
                    const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
                    const LseView& lse, const float* sinks) {
  validate(problem);
  const RankTensors tensors{q, k, v, out, lse, sinks};
  check_tensors(problem, problem.q_len, problem.kv_len, tensors);
  const auto transports = make_inproc_transports(options.ranks, options.timeout_s);
  const Layouts layouts = make_layouts(options.layout, problem, options.ranks);
  AttendReport report;
  report.per_rank.resize(transports.size());
  const auto start = std::chrono::steady_clock::now();
  run_team(transports, [&](std::size_t rank) {
    Ring ring(problem, layouts, options.ring, *transports[rank]);
    if (rank == 0) {
      ring.set_progress(options.progress);
      report.bits_invariant = ring.bits_invariant();
    }
    report.per_rank[rank] = attend_shard(ring, tensors, layouts.q.shards[rank], layouts.kv.shards[rank]);
  });
  report.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace kvring
