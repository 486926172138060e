#include "planner/script.h"

#include "schedule/step.h"

namespace kvring {

Script make_script(const Setting& s) {
  const auto ranks = static_cast<std::size_t>(s.ranks());
  const PairCount count(s.problem(), s.layouts());
  Script script{std::vector<PlayedStep>(ranks * ranks), std::vector<int>(ranks, -1),
                std::vector<int>(ranks, -1)};
  for_each_rank_steps(ScheduleKind::kRing, s.problem(), s.layouts(),
                      [&](int rank, const std::vector<Step>& steps) {
                        for (const Step& step : steps) {
                          PlayedStep& played = script.steps[script.index(step.step, rank)];
                          for (const Transfer& send : step.sends) {
                            script.to[static_cast<std::size_t>(rank)] = send.peer;
                            played.block = send.parcel.owner;
                            played.sends = true;
                          }
                          for (const Transfer& receive : step.receives) {
                            script.from[static_cast<std::size_t>(rank)] = receive.peer;
                            played.receive_block = receive.parcel.owner;
                          }
                          for (const Attend& attend : step.attends) {
                            played.block = attend.block;
                            played.pairs = static_cast<float>(count.pairs(rank, attend.block));
                          }
                        }
                      });
  return script;
}

}  // namespace kvring
