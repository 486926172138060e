// The phases of attending packed blocks, each alone, on one thread.
//
//   build/release/bin/kernel_bench --benchmark_filter='f32/d64/reproducible'
//
// Times are of the thread's processor, so that other programs count less. Attention is held against the
// ceiling of its arithmetic, measured before and after; the phases that only move data say how much of it.
// `kvring bench kernel` measures whole rows of the table.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cli/bench/block_run.h"
#include "kernel/panel.h"
#include "kernel/tile.h"
#include "peak/peak.h"
#include "peak/rate.h"

namespace kvring {
namespace {

using cli::BlockRun;

struct Case {
  DType dtype = DType::kF32;
  std::int64_t head_dim = 0, value_dim = 0;
  Accumulation accumulation = Accumulation::kReproducible;
};

// One job of the kernel: as many queries as share a read of a tile, over enough keys to forget the ends.
Problem problem_of(const Case& c) {
  Problem p;
  p.q_len = kItemPanels * kPanelRows;
  p.kv_len = 8192;
  p.head_dim = c.head_dim;
  p.value_dim = c.value_dim;
  p.q_dtype = p.kv_dtype = p.out_dtype = c.dtype;
  p.accumulation = c.accumulation;
  return p;
}

template <typename Work>
double best_seconds(benchmark::State& state, const Work& work) {
  double best = 1e9;
  for (auto _ : state) {
    const double start = thread_seconds();
    work();
    const double seconds = thread_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  return best;
}

double ceiling(DType dtype) {
  const double fma = fma_peak_gflops();
  return dtype == DType::kBF16 ? std::max(fma, bf16_dot_peak_gflops().value_or(0)) : fma;
}

void bench_attend(benchmark::State& state, const Case& c) {
  const Problem p = problem_of(c);
  BlockRun run(p, 1);
  run.begin();
  const double before = ceiling(c.dtype);
  const double seconds = best_seconds(state, [&] { run.attend(); });
  const double peak = std::max(before, ceiling(c.dtype));
  const double gflops = 2.0 * static_cast<double>(p.q_len * p.kv_len) *
                        static_cast<double>(p.head_dim + p.value_dim) / seconds * 1e-9;
  state.counters["GFLOP/s"] = gflops;
  state.counters["peak"] = peak;
  state.counters["of_peak"] = gflops / peak;
}

// `elements`: of the tensors that a phase reads or writes.
void bench_moves(benchmark::State& state, const Case& c, void (BlockRun::*phase)(), std::int64_t elements) {
  BlockRun run(problem_of(c), 1);
  run.run();
  const double seconds = best_seconds(state, [&] { (run.*phase)(); });
  state.counters["GB/s"] =
      static_cast<double>(elements * static_cast<std::int64_t>(dtype_bytes(c.dtype))) / seconds * 1e-9;
}

template <typename Bench>
void add(const std::string& name, const Bench& bench) {
  benchmark::RegisterBenchmark(name.c_str(), bench)->UseManualTime();
}

// Keys and values are packed together; beside a dim of 1 the other hardly counts.
void add_packing(DType dtype, std::int64_t dim) {
  const std::int64_t keys = problem_of({}).kv_len;
  const auto name = [&](const char* what) { return fmt::format("{}/{}/d{}", what, dtype_name(dtype), dim); };
  add(name("pack_keys"), [=](benchmark::State& s) {
    bench_moves(s, {dtype, dim, 1}, &BlockRun::pack, keys * (dim + 1));
  });
  add(name("pack_values"), [=](benchmark::State& s) {
    bench_moves(s, {dtype, 1, dim}, &BlockRun::pack, keys * (dim + 1));
  });
}

// One panel of 48 rows and one tile of 512 keys.
class PhaseRun {
 public:
  explicit PhaseRun(const Case& c)
      : shape_{c.head_dim,
               c.value_dim,
               kTile,
               c.dtype,
               products_of(c.dtype, c.dtype),
               c.accumulation,
               {1.0f / std::sqrt(static_cast<float>(c.head_dim)), 0.0f}},
        scratch_(shape_),
        k_(kTile * c.head_dim * 4),
        v_(kTile * c.value_dim * 4),
        q_(query_bytes(shape_.products, c.head_dim)),
        state_(panel_bytes(c.value_dim, c.accumulation)),
        queries_(c.dtype, {1, kPanelRows, 1, c.head_dim}, 1) {
    const cli::RandomTensor keys(c.dtype, {1, kTile, 1, c.head_dim}, 2);
    const cli::RandomTensor values(c.dtype, {1, kTile, 1, c.value_dim}, 3);
    const ConstTensorView k = as_const(keys.view()), v = as_const(values.view());
    pack_keys(shape_.products, {&k, 0, 0, 0, kTile}, k_.data());
    pack_values(shape_.products, {&v, 0, 0, 0, kTile}, v_.data());
    std::int64_t offsets[kPanelRows];
    for (int i = 0; i < kPanelRows; ++i) offsets[i] = i * c.head_dim;
    const PackedQueries q =
        pack_queries(shape_.products, as_const(queries_.view()), offsets, kPanelRows, q_.data());
    job_ = {q, nullptr, state_.data()};
    panel_init(state_.data(), c.value_dim, c.accumulation);
    for (TilePhase phase : {TilePhase::kWiden, TilePhase::kScores, TilePhase::kWeights, TilePhase::kValues})
      run(phase);
  }

  void run(TilePhase phase) { tile_phase(phase, shape_, {k_.data(), v_.data(), kTile}, job_, scratch_); }

  static constexpr std::int64_t kTile = 512;

 private:
  TileShape shape_;
  TileScratch scratch_;
  AlignedBuffer k_, v_, q_, state_;
  cli::RandomTensor queries_;
  PanelJob job_;
};

// Of a phase: cycles' worth of fused multiply-adds that 16 rows and one key take, which add up to the whole.
// At least head_dim / 2 are needed for scores and value_dim / 2 for values, with two vectors of 16 a cycle.
void bench_phase(benchmark::State& state, const Case& c, TilePhase phase) {
  constexpr int kTimes = 8;
  const FloatEnvironment environment;
  PhaseRun run(c);
  const double peak = fma_peak_gflops();
  double best = 1e9;
  for (auto _ : state) {
    double seconds = 0;
    for (int i = 0; i < kTimes; ++i) {
      if (phase == TilePhase::kWeights) run.run(TilePhase::kScores);  // they were overwritten
      const double start = thread_seconds();
      run.run(phase);
      seconds += thread_seconds() - start;
    }
    best = std::min(best, seconds / kTimes);
    state.SetIterationTime(seconds / kTimes);
  }
  const double flops_of_a_cycle = 2.0 * 2 * 16;
  state.counters["cycles"] = best * std::max(peak, fma_peak_gflops()) * 1e9 / flops_of_a_cycle /
                             (static_cast<double>(PhaseRun::kTile) * kPanelRows / 16);
}

void add_attention(const Case& c) {
  const std::string suffix = fmt::format("{}/d{}{}", dtype_name(c.dtype), c.head_dim,
                                         c.head_dim == c.value_dim ? "" : fmt::format("v{}", c.value_dim));
  const char* sum = c.accumulation == Accumulation::kOnline ? "online" : "reproducible";
  add(fmt::format("attend/{}/{}", suffix, sum), [=](benchmark::State& s) { bench_attend(s, c); });
  if (c.dtype != DType::kF32)
    add(fmt::format("widen/{}", suffix), [=](benchmark::State& s) { bench_phase(s, c, TilePhase::kWiden); });
  const auto add_phase = [&](const char* name, TilePhase phase) {
    add(fmt::format("{}/{}/{}", name, suffix, sum), [=](benchmark::State& s) { bench_phase(s, c, phase); });
  };
  add_phase("scores", TilePhase::kScores);
  add_phase("weights", TilePhase::kWeights);
  add_phase("values", TilePhase::kValues);
  add_phase("deposit", TilePhase::kDeposit);
}

void add_all() {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t dim : {64, 128, 256}) {
      add_packing(dtype, dim);
      for (const Accumulation sum : {Accumulation::kReproducible, Accumulation::kOnline})
        add_attention({dtype, dim, dim, sum});
    }
    add_attention({dtype, 192, 128});
  }
}

}  // namespace
}  // namespace kvring

int main(int argc, char** argv) {
  kvring::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
