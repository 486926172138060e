#include "cli/bench/kernel_row.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/bench/block_run.h"
#include "cli/bench/machine.h"

namespace kvring::cli {
namespace {

// What is timed for one case: the row's own, or the one that it is held against.
struct Subject {
  KernelCase what;
  Problem problem;
  std::unique_ptr<BlockRun> run;
  int times = 1;  // per sample
  std::vector<Sample> samples;
};

// Decode gets as many heads as fill the memory.
Problem subject_problem(const KernelCase& c, std::int64_t memory_bytes) {
  std::int64_t heads = 1;
  if (c.mask == KernelCase::Mask::kDecode) {
    const double wanted = static_cast<double>(memory_bytes) / kv_bytes(case_problem(c, 1));
    heads = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(wanted)));
  }
  return case_problem(c, heads);
}

Subject make_subject(const KernelCase& c, const MeasureOptions& options) {
  Subject subject{c, subject_problem(c, options.memory_bytes), nullptr, 1, {}};
  validate(subject.problem);
  subject.run = std::make_unique<BlockRun>(subject.problem, c.threads);
  return subject;
}

using Report = std::function<void(double)>;

// Untimed: touches all memory and finds how often the work fits a sample.
void warm_up(Subject& subject, const MeasureOptions& options, const Report& report) {
  const Sample first = time_work([&] { subject.run->run(report); }, 1);
  subject.times = std::clamp(static_cast<int>(std::ceil(options.least_sample_s / first.wall_s)), 1, 1000);
}

// By turns, so that both meet the same clock. A round in which others took the core does not count while
// there are chances left.
void take_samples(std::vector<Subject>& subjects, const MeasureOptions& options, const Report& progress) {
  const double steps = static_cast<double>(subjects.size()) * (options.repeats + 1);
  double done = 0;
  const Report report = [&](double share) { progress(std::min(1.0, (done + share) / steps)); };
  for (Subject& subject : subjects) {
    warm_up(subject, options, report);
    done += 1;
  }
  int spare = options.repeats;
  for (int round = 0; round < options.repeats;) {
    bool shared = false;
    for (Subject& s : subjects) {
      s.samples.push_back(time_work([&] { s.run->run(report); }, s.times));
      shared = shared || is_shared(s.samples.back(), s.what.threads);
      done += 1;
    }
    if (!shared || spare == 0) {
      ++round;
      continue;
    }
    --spare;
    done -= static_cast<double>(subjects.size());
    for (Subject& s : subjects) s.samples.pop_back();
  }
}

double gflops(const Subject& subject, double seconds) {
  return needed_flops(subject.problem) / seconds * 1e-9;
}

KernelRatio compare(const Subject& base, const Subject& subject, KernelCase::Suffix suffix) {
  KernelRatio ratio{subject.what, base.what, ratio_target(subject.what, suffix), 0};
  std::vector<double> values;
  for (std::size_t i = 0; i < subject.samples.size(); ++i) {
    const double a = base.samples[i].own_s(subject.what.threads);  // alike for both
    const double b = subject.samples[i].own_s(subject.what.threads);
    // Grouped heads do more work than the base: speed for speed. The others do the same.
    values.push_back(suffix == KernelCase::Suffix::kGroup ? gflops(subject, b) / gflops(base, a) : a / b);
  }
  ratio.value = median(std::move(values));
  return ratio;
}

}  // namespace

KernelResult measure_case(const KernelCase& c, const MeasureOptions& options, const ReadBandwidth& reads,
                          const Report& progress) {
  const std::optional<KernelCase::Suffix> suffix = last_suffix(c);
  std::vector<Subject> subjects;
  if (suffix) subjects.push_back(make_subject(without(c, *suffix), options));
  subjects.push_back(make_subject(c, options));

  KernelResult result;
  KernelRow& row = result.row;
  const bool decode = c.mask == KernelCase::Mask::kDecode;
  const Peaks before = measure_peaks(c.threads);
  if (decode) row.read_gbytes_per_s.before = reads.gbytes_per_s(c.threads);
  take_samples(subjects, options, progress);
  const Peaks after = measure_peaks(c.threads);
  if (decode) row.read_gbytes_per_s.after = reads.gbytes_per_s(c.threads);

  const Subject& subject = subjects.back();
  row.what = c;
  row.problem = subject.problem;
  row.seconds = median_wall_s(subject.samples);
  row.cpu_seconds = median_cpu_s(subject.samples);
  row.repeats = options.repeats;
  const double own_s = median_own_s(subject.samples, c.threads);
  row.gflops = gflops(subject, own_s);
  row.best_speed = own_s / least_own_s(subject.samples, c.threads);
  row.peak_name = ceiling_name(c.dtype, before);
  row.peak_gflops = {ceiling_of(row.peak_name, before), ceiling_of(row.peak_name, after)};
  if (c.dtype == DType::kBF16 && before.bf16_amx_gflops)
    row.amx_peak_gflops = std::max(*before.bf16_amx_gflops, *after.bf16_amx_gflops);
  if (decode) row.gbytes_per_s = kv_bytes(row.problem) / own_s * 1e-9;
  row.target = target_fraction(c);
  row.marks =
      marks_of(decode ? row.read_gbytes_per_s : row.peak_gflops, {row.seconds, row.cpu_seconds}, c.threads);
  if (suffix) result.ratio = compare(subjects.front(), subject, *suffix);
  return result;
}

}  // namespace kvring::cli
