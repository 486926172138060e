#include "planner/script.h"

#include <fmt/format.h>

#include <limits>
#include <unordered_map>

#include "kvring/error.h"
#include "schedule/parcel.h"
#include "schedule/relay.h"

namespace kvring {
namespace {

using Kind = Instruction::Kind;

// Numbers of links, by their ends.
class Links {
 public:
  explicit Links(std::vector<Script::Link>& links) : links_(links) {}

  std::int32_t of(int from, int to) {
    const auto [entry, is_new] =
        numbers_.try_emplace(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to),
                             static_cast<std::int32_t>(links_.size()));
    if (is_new) links_.push_back({from, to});
    return entry->second;
  }

 private:
  std::vector<Script::Link>& links_;
  std::unordered_map<std::uint64_t, std::int32_t> numbers_;
};

// One rank's steps as instructions, in the executor's order (Executor::run_lap).
class Compiler {
 public:
  Compiler(int rank, int ranks, const std::vector<Step>& steps, const PairCount& count, Links& links)
      : rank_(rank),
        ranks_(ranks),
        relay_(steps, rank, ranks),
        count_(count),
        links_(links),
        held_(std::size(kCargos) * static_cast<std::size_t>(ranks)) {
    take(Cargo::kBlock, rank);
    if (relay_.sends_own(Cargo::kQueries)) take(Cargo::kQueries, rank);
    for (const Step& step : steps) add(step);
    for (const Cargo cargo : kCargos) {
      for (int owner = 0; owner < ranks; ++owner) leave(cargo, owner);
    }
  }
  std::vector<Instruction> take_all() { return {all_.begin(), all_.end()}; }  // of the size that it has

 private:
  char& held(Cargo cargo, int owner) {
    return held_[static_cast<std::size_t>(cargo) * static_cast<std::size_t>(ranks_) +
                 static_cast<std::size_t>(owner)];
  }
  Instruction& append(Kind kind, Cargo cargo, int who) {
    return all_.emplace_back(Instruction{kind, cargo, static_cast<std::int16_t>(who), {}});
  }
  void take(Cargo cargo, int owner) {
    if (held(cargo, owner)) return;
    held(cargo, owner) = 1;
    append(Kind::kTake, cargo, owner);
  }
  void leave(Cargo cargo, int owner) {
    if (held(cargo, owner)) append(Kind::kLeave, cargo, owner);
    held(cargo, owner) = 0;
  }
  // As Executor::queries_of().
  void take_accumulators(int owner) {
    if (held(Cargo::kPartials, owner)) return;
    take(Cargo::kPartials, owner);
    if (owner != rank_ && relay_.finishes(owner)) take(Cargo::kRows, owner);
  }

  void add(const Step& step) {
    for (std::size_t i = 0; i < step.sends.size(); ++i) {
      if (relay_.forwarded(step.step, i)) continue;
      const auto& [parcel, peer] = step.sends[i];
      if (parcel.cargo == Cargo::kPartials) take_accumulators(parcel.owner);
      append(Kind::kSend, parcel.cargo, parcel.owner).link = links_.of(rank_, peer);
    }
    for (const Transfer& receive : step.receives)
      append(Kind::kReceive, receive.parcel.cargo, receive.parcel.owner).link =
          links_.of(receive.peer, rank_);
    for (std::size_t i = 0; i < step.receives.size(); ++i) {
      if (const int to = relay_.forward_to(step.step, i); to >= 0)
        append(Kind::kForward, step.receives[i].parcel.cargo, static_cast<int>(i)).link =
            links_.of(rank_, to);
    }
    attend(step);
    for (const Relay::Use& use : relay_.last_uses(step.step)) leave(use.cargo, use.owner);
    for (const Transfer& receive : step.receives) {
      const auto [cargo, owner, share] = receive.parcel;
      if (cargo == Cargo::kPartials) take_accumulators(owner);
      if (cargo == Cargo::kBlock || cargo == Cargo::kQueries) held(cargo, owner) = 1;
    }
    append(Kind::kWait, Cargo::kBlock, -1);
    for (const std::int32_t owner : step.finishes) {
      take_accumulators(owner);
      leave(Cargo::kPartials, owner);
    }
  }

  void attend(const Step& step) {
    for (std::size_t i = 0; i < step.attends.size(); ++i) {
      const auto [queries, block] = step.attends[i];
      if (i == 0 || step.attends[i - 1].queries != queries) take_accumulators(queries);
      append(Kind::kMeet, Cargo::kBlock, block).pairs = static_cast<float>(count_.pairs(queries, block));
      if (i + 1 == step.attends.size() || step.attends[i + 1].queries != queries)
        append(Kind::kAttend, Cargo::kQueries, queries);
    }
  }

  int rank_, ranks_;
  Relay relay_;
  const PairCount& count_;
  Links& links_;
  std::vector<char> held_;  // by cargo, then owner
  std::vector<Instruction> all_;
};

}  // namespace

std::array<Script::Slots, std::size(kCargos)> script_slots(ScheduleKind kind, const Setting& s) {
  const MemoryInputs inputs{s.problem(), s.layouts(), static_cast<int>(s.machine().threads.value), false,
                            kind};
  const WorkspaceSizes sizes = workspace_sizes(inputs, 0, s.of(kind).memory.heads_per_lap);
  std::array<Script::Slots, std::size(kCargos)> slots;
  for (const Cargo cargo : kCargos) {
    const auto& [own, arriving] = sizes.of(cargo);
    slots[static_cast<std::size_t>(cargo)] = {{own.bytes.size(), own.by_owner},
                                              {arriving.bytes.size(), arriving.by_owner}};
  }
  return slots;
}

Script make_script(ScheduleKind kind, const Setting& s) {
  const int ranks = s.ranks();
  if (ranks > std::numeric_limits<std::int16_t>::max())
    throw Unsupported(fmt::format("simulations are of at most {} ranks, not {}",
                                  std::numeric_limits<std::int16_t>::max(), ranks));
  Script script;
  const std::int64_t units = s.of(kind).memory.heads_per_lap;
  const bool shared = kind == ScheduleKind::kUlysses && ranks > 1;
  if (shared) script.share = 1.0 / ranks;
  for (const Cargo cargo : kCargos) {
    for (int owner = 0; owner < ranks; ++owner)
      script.parcel_bytes[static_cast<std::size_t>(cargo)].push_back(
          parcel_bytes(s.problem(), s.layouts(), cargo, owner, shared ? units / ranks : units));
  }
  script.slots = script_slots(kind, s);
  const PairCount count(s.problem(), s.layouts());
  Links links(script.links);
  for_each_rank_steps(kind, s.problem(), s.layouts(), [&](int rank, const std::vector<Step>& steps) {
    script.steps = std::ssize(steps);
    for (const Step& step : steps) script.transfers += std::ssize(step.sends);
    script.ranks.push_back(Compiler(rank, ranks, steps, count, links).take_all());
  });
  return script;
}

}  // namespace kvring
