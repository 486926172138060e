#include "tests/sim/tally.h"

#include <fmt/format.h>

#include "tests/sim/judge.h"

namespace kvring::sim {
namespace {

constexpr const char* kHealed = "healed";

}  // namespace

std::string name_of(const Fault& fault) {
  if (fault.of_message())
    return fmt::format("{} of a {}", fault_name(fault.kind), class_name(fault.message_class));
  return fault_name(fault.kind);
}

std::uint64_t Tally::met(const Fault& like) const {
  const auto found = by_fault_.find(name_of(like));
  if (found == by_fault_.end()) return 0;
  std::uint64_t sum = 0;
  for (const auto& [guard, count] : found->second) sum += count;
  return sum;
}

void Tally::add(const Trial& trial) {
  ++runs_;
  wrong_ += trial.wrong.empty() ? 0 : 1;
  events_ += trial.run.events;
  virtual_s_ += std::chrono::duration<double>(trial.run.measured.length).count();
  digest_ += trial.run.digest;
  std::string caught = caught_by(trial.run);
  if (caught.empty()) caught = kHealed;
  ++ends_[caught];
  // The pause that goes with a fault of a control note only makes notes flow.
  const Fault* only = nullptr;
  int fired = 0;
  for (std::size_t i = 0; i < trial.faults.size(); ++i) {
    if (!trial.run.fired[i] || (only && trial.faults[i].kind == FaultKind::kPause)) continue;
    ++fired;
    only = &trial.faults[i];
  }
  if (fired == 0) ++no_fault_;
  if (fired > 1) ++several_;
  if (fired == 1) ++by_fault_[name_of(*only)][caught];
}

std::string Tally::table() const {
  std::string text = fmt::format("{:<28}{:>8}  {}\n", "one fault", "runs", "how they ended");
  const auto list = [](const Counts& counts) {
    std::string line;
    for (const auto& [guard, count] : counts)
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", guard, count);
    return line;
  };
  for (const auto& [fault, counts] : by_fault_) {
    std::uint64_t sum = 0;
    for (const auto& [guard, count] : counts) sum += count;
    text += fmt::format("{:<28}{:>8}  {}\n", fault, sum, list(counts));
  }
  text += fmt::format("{:<28}{:>8}\n{:<28}{:>8}\n", "no fault met anything", no_fault_, "several faults",
                      several_);
  text += fmt::format("{:<28}{:>8}  {}\n", "all", runs_, list(ends_));
  text += fmt::format("{} seeds, {} wrong, {} turns, {:.0f} s of virtual time, digest {:016x}\n", runs_,
                      wrong_, events_, virtual_s_, digest_);
  return text;
}

}  // namespace kvring::sim
