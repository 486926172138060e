#include "tests/sim/trial.h"

#include <fmt/format.h>

#include "tests/sim/judge.h"

namespace kvring::sim {

Trial try_seed(std::uint64_t seed) {
  Trial trial;
  trial.world = make_world(seed);
  const Expected expected = expect(trial.world);
  trial.run = simulate(trial.world, expected, {});
  trial.wrong = judge(trial.world, {}, trial.run);
  if (!trial.wrong.empty()) return trial;
  trial.faults = draw_faults(trial.world, trial.run.measured);
  trial.run = simulate(trial.world, expected, trial.faults);
  trial.wrong = judge(trial.world, trial.faults, trial.run);
  return trial;
}

Trial try_faults(std::uint64_t seed, const std::vector<Fault>& faults) {
  Trial trial;
  trial.world = make_world(seed);
  trial.faults = faults;
  trial.run = simulate(trial.world, expect(trial.world), faults);
  trial.wrong = judge(trial.world, faults, trial.run);
  return trial;
}

std::string describe(const Trial& trial) {
  std::string text = describe(trial.world) + "\n";
  for (std::size_t i = 0; i < trial.faults.size(); ++i)
    text +=
        fmt::format("  fault: {}{}\n", describe(trial.faults[i]), trial.run.fired[i] ? "" : " (met nothing)");
  const auto at = [](Time time) { return std::chrono::duration<double>(time - kStart).count(); };
  for (std::size_t rank = 0; rank < trial.run.ends.size(); ++rank) {
    const RankEnd& end = trial.run.ends[rank];
    text += fmt::format("  rank {}: {} right, {}, at {:.6f} s, gone at {:.6f} s{}{}{}\n", rank, end.right,
                        end.returned ? "returned" : end.error, at(end.came), at(end.ended),
                        end.crashed ? " [crashed]" : "",
                        end.verdict.text.empty() ? "" : "; verdict: ", end.verdict.text);
  }
  text += fmt::format("  last progress at {:.6f} s; {} events, digest {:016x}\n", at(trial.run.last_progress),
                      trial.run.events, trial.run.digest);
  for (const std::string& wrong : trial.wrong) text += "  WRONG: " + wrong + "\n";
  return text;
}

}  // namespace kvring::sim
