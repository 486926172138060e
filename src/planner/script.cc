#include "planner/script.h"

#include "schedule/step.h"

namespace kvring {

Script make_script(const Setting& s) {
  const auto ranks = static_cast<std::size_t>(s.ranks());
  const PairCount count(s.problem(), s.layouts());
  Script script{std::vector<PlayedStep>(ranks * ranks), std::vector<int>(ranks, -1),
                std::vector<int>(ranks, -1)};
  for_each_rank_steps(
      ScheduleKind::kRing, s.problem(), s.layouts(), [&](int rank, const std::vector<Step>& steps) {
        for (const Step& step : steps) {
          if (step.send_to >= 0) script.to[static_cast<std::size_t>(rank)] = step.send_to;
          if (step.receive_from >= 0) script.from[static_cast<std::size_t>(rank)] = step.receive_from;
          const double pairs = step.attend ? static_cast<double>(count.pairs(rank, step.block)) : 0;
          script.steps[script.index(step.step, rank)] = {static_cast<float>(pairs), step.block,
                                                         step.receive_block, step.send_to >= 0};
        }
      });
  return script;
}

}  // namespace kvring
