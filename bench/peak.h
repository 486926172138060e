// What one core can do at best: float32 fused multiply-adds from registers.
#pragma once

namespace kvring {

// GFLOP/s (two operations each) of this thread now, the best of a few tries.
double fma_peak_gflops();

}  // namespace kvring
