#include "cli/bench/sample.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

namespace kvring::cli {
namespace {

double process_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename Part>
double median_of(const std::vector<Sample>& samples, const Part& part) {
  std::vector<double> values;
  for (const Sample& s : samples) values.push_back(part(s));
  return median(std::move(values));
}

}  // namespace

Sample time_work(const std::function<void()>& work, int times) {
  using Clock = std::chrono::steady_clock;
  const double cpu = process_seconds();
  const auto wall = Clock::now();
  for (int i = 0; i < times; ++i) work();
  const double wall_s = std::chrono::duration<double>(Clock::now() - wall).count();
  return {wall_s / times, (process_seconds() - cpu) / times};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double median_wall_s(const std::vector<Sample>& samples) {
  return median_of(samples, [](const Sample& s) { return s.wall_s; });
}

double median_cpu_s(const std::vector<Sample>& samples) {
  return median_of(samples, [](const Sample& s) { return s.cpu_s; });
}

double median_own_s(const std::vector<Sample>& samples, int threads) {
  return median_of(samples, [threads](const Sample& s) { return s.own_s(threads); });
}

double least_own_s(const std::vector<Sample>& samples, int threads) {
  double least = samples.front().own_s(threads);
  for (const Sample& s : samples) least = std::min(least, s.own_s(threads));
  return least;
}

bool is_shared(const Sample& sample, int threads) {
  return sample.cpu_s < (1 - kTrusted) * sample.wall_s * threads;
}

std::vector<std::string> marks_of(const Ceiling& ceiling, const Sample& typical, int threads) {
  std::vector<std::string> marks;
  if (std::abs(ceiling.before - ceiling.after) > kTrusted * ceiling.value()) marks.push_back("throttled");
  if (is_shared(typical, threads)) marks.push_back("shared");
  return marks;
}

}  // namespace kvring::cli
