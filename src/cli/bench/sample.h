// Time of a piece of work, and what of it can be trusted on a machine that others use as well.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kvring::cli {

struct Sample {
  double wall_s = 0;
  double cpu_s = 0;  // of all threads of the process

  // What speeds are computed from. One thread: its own processor time, as the ceilings are, so that others on
  // its core hardly count. Several: wall time, because waiting for each other is theirs.
  double own_s(int threads) const { return threads == 1 ? cpu_s : wall_s; }
};

// Runs `work` so many times; the sample is of one of them.
Sample time_work(const std::function<void()>& work, int times);

// Half of the values are not above it, half not below. At least one value.
double median(std::vector<double> values);
double median_wall_s(const std::vector<Sample>& samples);
double median_cpu_s(const std::vector<Sample>& samples);
double median_own_s(const std::vector<Sample>& samples, int threads);
double least_own_s(const std::vector<Sample>& samples, int threads);

// Measured before and after: the larger counts.
struct Ceiling {
  double before = 0;
  double after = 0;
  double value() const { return before > after ? before : after; }
};

// Differences above this share of the larger value are marked.
inline constexpr double kTrusted = 0.10;

// The threads got less of their cores than that: others ran there, or the work was dealt out unevenly.
bool is_shared(const Sample& sample, int threads);

// Marks of a measurement: "throttled" where the ceiling moved while it ran, "shared" as above.
std::vector<std::string> marks_of(const Ceiling& ceiling, const Sample& typical, int threads);

}  // namespace kvring::cli
