// Measures the cases of `kvring bench kernel`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/case.h"
#include "cli/bench/sample.h"
#include "peak/peak.h"

namespace kvring::cli {

struct KernelRow {
  KernelCase what;
  Problem problem;
  double seconds = 0, cpu_seconds = 0;  // medians: wall, and of all threads
  int repeats = 0;
  double gflops = 0;                      // needed work only, by Sample::own_s
  double best_speed = 1;                  // of the fastest run, in those of the median
  std::string peak_name;                  // "f32_fma", "bf16_dot": the ceiling
  Ceiling peak_gflops;                    // of as many threads
  std::optional<double> amx_peak_gflops;  // bf16, where there is AMX
  std::optional<double> gbytes_per_s;     // decode: K and V read once
  Ceiling read_gbytes_per_s;
  std::optional<double> target;  // of fraction()
  std::vector<std::string> marks;

  double fraction_of_peak() const { return gflops / peak_gflops.value(); }
  // Of the ceiling that the case runs into: reads for decode, else arithmetic.
  double fraction() const {
    return gbytes_per_s ? *gbytes_per_s / read_gbytes_per_s.value() : fraction_of_peak();
  }
  // Of the fastest run: ceilings are the best of some tries, too.
  double best_fraction() const { return fraction() * best_speed; }
};

// A case against the one without its last suffix, run by turns.
struct KernelRatio {
  KernelCase what, against;
  RatioTarget target;
  double value = 0;
  bool reached() const { return target.at_most ? value <= target.limit : value >= target.limit; }
};

struct KernelResult {
  KernelRow row;
  std::optional<KernelRatio> ratio;
};

struct MeasureOptions {
  int repeats = 5;
  double least_sample_s = 0.05;   // shorter work is run several times per sample
  std::int64_t memory_bytes = 0;  // that no cache holds: what a decode case reads at least
};

// `progress` is called with the share of this case done. `reads` measures the ceiling of decode.
KernelResult measure_case(const KernelCase& c, const MeasureOptions& options, const ReadBandwidth& reads,
                          const std::function<void(double)>& progress);

}  // namespace kvring::cli
