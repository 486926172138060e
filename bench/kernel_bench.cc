// Tile attention on one thread against the machine's own fused multiply-add peak, measured before and after
// each case.
//
//   build/release/bin/kernel_bench --benchmark_filter=f32
//
// Counters: GFLOP/s of the 4 * rows * keys * dim operations that attention needs, the peak, and their ratio,
// which is what means something on a shared machine. Times are of the thread's processor, so that other
// programs count less.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "kernel/panel.h"
#include "kernel/tile.h"
#include "peak/peak.h"
#include "peak/rate.h"

namespace kvring {
namespace {

constexpr int kPanels = 4;  // as the executor has it
constexpr std::int64_t kTile = 512;

struct Case {
  DType dtype;
  Accumulation accumulation;
  std::int64_t dim, keys;
};

// Keys, values and queries of one head, packed, and the state of a few panels.
class Workload {
 public:
  explicit Workload(const Case& c)
      : case_(c),
        shape_{c.dim, c.dim, kTile, c.dtype, products_of(c.dtype, c.dtype), c.accumulation, {0.125f, 0.0f}},
        scratch_(shape_),
        tile_bytes_(kTile * c.dim * static_cast<std::int64_t>(dtype_bytes(c.dtype))),
        k_(c.keys / kTile * tile_bytes_),
        v_(c.keys / kTile * tile_bytes_),
        q_(kPanels * query_bytes(shape_.products, c.dim)),
        states_(kPanels * panel_bytes(c.dim, c.accumulation)) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<std::byte> rows(static_cast<std::size_t>(tile_bytes_));
    const ConstTensorView view = dense_view<const void>(rows.data(), c.dtype, {1, kTile, 1, c.dim});
    for (std::int64_t t = 0; t < c.keys / kTile; ++t) {
      for (std::int64_t i = 0; i < kTile * c.dim; ++i) store_element(rows.data(), c.dtype, i, normal(rng));
      pack_keys(shape_.products, {&view, 0, 0, 0, kTile}, k_.data() + t * tile_bytes_);
      pack_values(shape_.products, {&view, 0, 0, 0, kTile}, v_.data() + t * tile_bytes_);
    }
    const std::int64_t panel = query_bytes(shape_.products, c.dim);
    std::array<std::int64_t, kPanelRows> offsets;
    for (int i = 0; i < kPanelRows; ++i) offsets[static_cast<std::size_t>(i)] = i * c.dim;
    for (std::size_t p = 0; p < kPanels; ++p) {
      for (std::int64_t i = 0; i < kPanelRows * c.dim; ++i)
        store_element(rows.data(), c.dtype, i, normal(rng));
      jobs_[p] = {pack_queries(shape_.products, view, offsets.data(), kPanelRows,
                               q_.data() + static_cast<std::int64_t>(p) * panel),
                  nullptr,
                  states_.data() + static_cast<std::int64_t>(p) * panel_bytes(c.dim, c.accumulation)};
    }
  }

  void run() {
    for (const PanelJob& job : jobs_) panel_init(job.state, case_.dim, case_.accumulation);
    for (std::int64_t t = 0; t < case_.keys / kTile; ++t) {
      attend_tile(shape_, {k_.data() + t * tile_bytes_, v_.data() + t * tile_bytes_, kTile}, jobs_, scratch_);
    }
  }

  double flops() const { return 4.0 * kPanels * kPanelRows * static_cast<double>(case_.keys * case_.dim); }

 private:
  Case case_;
  TileShape shape_;
  TileScratch scratch_;
  std::int64_t tile_bytes_;
  AlignedBuffer k_, v_, q_, states_;
  std::array<PanelJob, kPanels> jobs_;
};

void bench_case(benchmark::State& state, const Case& c) {
  const FloatEnvironment environment;
  Workload work(c);
  double best = 1e9;
  double peak = fma_peak_gflops();
  for (auto _ : state) {
    const double start = thread_seconds();
    work.run();
    const double seconds = thread_seconds() - start;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  peak = std::max(peak, fma_peak_gflops());
  state.counters["GFLOP/s"] = work.flops() / best * 1e-9;
  state.counters["peak"] = peak;
  state.counters["of peak"] = work.flops() / best * 1e-9 / peak;
}

}  // namespace
}  // namespace kvring

int main(int argc, char** argv) {
  using namespace kvring;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (Accumulation sum : {Accumulation::kReproducible, Accumulation::kOnline}) {
      for (std::int64_t dim : {64, 128}) {
        const std::string name = fmt::format("{}-{}-d{}-n8192", dtype_name(dtype),
                                             sum == Accumulation::kOnline ? "online" : "reproducible", dim);
        const Case c{dtype, sum, dim, 8192};
        benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& s) {
          bench_case(s, c);
        })->UseManualTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
