#include <barrier>
#include <thread>

#include "peak/peak.h"

namespace kvring {

Peaks measure_peaks(int threads) {
  std::vector<Peaks> each(static_cast<std::size_t>(threads));
  std::barrier together(threads);
  const auto measure = [&](Peaks& peaks) {
    together.arrive_and_wait();
    peaks.f32_fma_gflops = fma_peak_gflops();
    together.arrive_and_wait();
    peaks.bf16_dot_gflops = bf16_dot_peak_gflops();
    together.arrive_and_wait();
    peaks.bf16_amx_gflops = amx_peak_gflops();
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < each.size(); ++t) others.emplace_back(measure, std::ref(each[t]));
    measure(each[0]);
  }
  Peaks sum = each[0];
  for (std::size_t t = 1; t < each.size(); ++t) {
    sum.f32_fma_gflops += each[t].f32_fma_gflops;
    if (sum.bf16_dot_gflops) *sum.bf16_dot_gflops += *each[t].bf16_dot_gflops;
    if (sum.bf16_amx_gflops) *sum.bf16_amx_gflops += *each[t].bf16_amx_gflops;
  }
  return sum;
}

}  // namespace kvring
