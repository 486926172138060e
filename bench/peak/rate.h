// Operations per second of a thread's own time.
#pragma once

#include <algorithm>
#include <ctime>

namespace kvring {

inline double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best GFLOP/s of some calls of `work`, each about a millisecond of `flops` operations: shorter ones
// would time the clock, longer ones would rarely escape an interrupt.
template <typename Work>
double best_gflops(double flops, const Work& work) {
  constexpr int kTries = 12;
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const double start = thread_seconds();
    work();
    best = std::max(best, flops / (thread_seconds() - start) * 1e-9);
  }
  return best;
}

}  // namespace kvring
