// One rank's member of a ring: what Ring is, for callers of this library that bring k and v with each call,
// and for the cache, which keeps them packed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kvring/ring.h"
#include "runtime/executor.h"
#include "runtime/rank_tensors.h"
#include "schedule/memory.h"

namespace kvring {

class RingMember {
 public:
  // Collective, as Ring's. `kept_bytes`: of the keys and values that calls bring packed; -1: they bring k and
  // v.
  RingMember(const Problem& problem, const Layouts& layouts, const RingOptions& options, Transport& transport,
             std::int64_t kept_bytes = -1);
  ~RingMember();
  RingMember(const RingMember&) = delete;
  RingMember& operator=(const RingMember&) = delete;

  void attend(const RankTensors& tensors);

  void set_progress(std::function<void(double)> progress) { progress_ = std::move(progress); }
  const RankReport& report() const noexcept { return report_; }
  Recorder& recorder() noexcept { return executor_->recorder(); }
  std::string record(const std::string& reason) const;
  bool bits_invariant() const;
  const ExecutionPlan& plan() const noexcept { return *plan_; }

 private:
  void take_workspace();

  RingOptions options_;
  Transport& transport_;
  std::unique_ptr<ExecutionPlan> plan_;
  Ledger ledger_;
  RankReport report_;
  std::function<void(double)> progress_;
  std::optional<std::string> failure_;  // of an earlier call
  std::optional<Executor> executor_;    // after what it refers to
};

}  // namespace kvring
