// The executor: runs the steps of a schedule on a transport and the kernel. It does not know which schedule
// they are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kvring/ring.h"
#include "kvring/transport.h"
#include "runtime/block_attention.h"
#include "runtime/rank_tensors.h"
#include "runtime/recorder.h"
#include "schedule/memory.h"
#include "schedule/step.h"
#include "tensor/buffer.h"

namespace kvring {

// What the executor runs: made once, the same for every call.
struct ExecutionPlan {
  Problem problem;
  Layouts layouts;
  std::vector<BlockMap> blocks;  // by owner
  std::vector<Step> steps;       // of this rank, for every lap
  std::vector<Lap> laps;
  WorkspaceSizes sizes;
  std::uint64_t digest = 0;
  int rank = 0;
};

class Executor {
 public:
  using Clock = Operation::Clock;

  // Takes the workspace; nothing is allocated later but small strings. Both references must outlive it.
  Executor(const ExecutionPlan& plan, Transport& transport, int threads);
  // Waits until no other rank reads this one's blocks (bounded by the transport's deadline).
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One attention of this rank's tensors. Fills times, traffic and tiles of the report. When it throws, the
  // other ranks have been told, none of them reads this rank's blocks any more, and the executor is of no
  // further use.
  void run(const RankTensors& tensors, const std::function<void(double)>& progress, RankReport& report);

  // What it did. Any thread.
  Recorder& recorder() noexcept { return recorder_; }

 private:
  struct Send {
    Operation operation;
    Recorder::Id record;
  };
  struct Slot {
    AlignedBuffer block;
    std::vector<Send> sends;  // that must be over before the block may be overwritten
  };
  // The block at hand in a step.
  struct Held {
    const std::byte* data = nullptr;
    int slot = 0;                               // where it lies, or the lap's own
    std::optional<Transport::Request> receive;  // another rank's memory: not yet released
  };
  // The next one.
  struct Arriving {
    int slot = 0;
    Transport::Request request = 0;
    std::chrono::steady_clock::time_point posted{};
    Recorder::Id record = 0;
    std::optional<Recorder::Id> forward{};  // that passes it on
  };

  void run_lap(std::uint32_t lap);
  void begin_lap(std::uint32_t lap, Slot& slot);
  void attend_block(const Step& step, std::uint32_t lap, const std::byte* block);

  Arriving post_receive(const Step& step, std::uint32_t lap, const Held& held);
  void forward(const Step& step, std::uint32_t lap, Arriving& arriving);
  Held receive(const Step& step, std::uint32_t lap, const Arriving& arriving);
  void send(const Step& step, std::uint32_t lap, const Held& held);
  Recorder::Id track_send(Transport::Request request, Operation operation, int slot);
  void let_go(Held& held);
  void free_slot(Slot& slot);
  void abandon(const std::string& reason) noexcept;

  // Does `work`, which may return what Tiles it met, as an operation that counts as `total`.
  template <typename Work>
  void timed(Operation operation, double& total, Work work);
  // An operation that is over.
  void note(Operation operation, Clock::time_point from, Clock::time_point to, double& total);

  std::int64_t block_bytes(int owner, std::uint32_t lap) const;
  std::string label(const char* what, int owner, std::uint32_t lap, int step) const;
  void report_progress(double done);

  const ExecutionPlan& plan_;
  Transport& transport_;
  Recorder recorder_;
  BlockAttention attention_;
  std::vector<Slot> slots_;

  // Of the call that runs.
  const RankTensors* tensors_ = nullptr;
  const std::function<void(double)>* progress_ = nullptr;
  RankReport* report_ = nullptr;
  std::uint32_t call_ = 0;
  std::uint64_t laps_run_ = 0;  // over all calls: laps take the slots in turn
  double work_total_ = 0, work_done_ = 0;
};

}  // namespace kvring
