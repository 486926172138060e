// What this machine can do at best, now: the ceilings that measured kernels are held against.
//
// Each is found by running the instruction itself, not from a data sheet: clocks change with the load, and a
// virtual machine may get a part of a core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace kvring {

// Operations per second of one thread, in 1e9; a fused multiply-add is two. From registers, independent
// chains, best of a few tries of a millisecond. Times are of the thread's processor, so that other programs
// on the core count less.
double fma_peak_gflops();                      // float32
std::optional<double> bf16_dot_peak_gflops();  // VDPBF16PS; none where the processor lacks it
std::optional<double> amx_peak_gflops();       // TDPBF16PS; none where processor or system withhold it

// Of several threads that run at once: the sum.
struct Peaks {
  double f32_fma_gflops = 0;
  std::optional<double> bf16_dot_gflops;
  std::optional<double> bf16_amx_gflops;
};
Peaks measure_peaks(int threads);

// How fast memory can be read: an array that no cache holds, front to back, every thread a part of it.
class ReadBandwidth {
 public:
  // Takes and touches that many bytes. Throws std::bad_alloc.
  explicit ReadBandwidth(std::int64_t bytes);

  // 1e9 bytes per second, the best of a few tries: of the thread's own time, or, all threads together, of
  // wall time.
  double gbytes_per_s(int threads) const;

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t bytes_;
};

}  // namespace kvring
