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
#include "runtime/places.h"
#include "runtime/rank_tensors.h"
#include "runtime/recorder.h"
#include "schedule/memory.h"
#include "schedule/relay.h"
#include "schedule/step.h"

namespace kvring {

// What the executor runs: made once, the same for every call.
struct ExecutionPlan {
  Problem problem;
  Layouts layouts;
  std::vector<BlockMap> blocks;  // by owner
  std::vector<Step> steps;       // of this rank, for every lap
  std::vector<Lap> laps;
  WorkspaceSizes sizes;
  std::int64_t tile_pairs = 0;  // (panel of queries, key tile) pairs that are this rank's to see or to skip
  std::uint64_t digest = 0;
  int rank = 0;
};

class Executor {
 public:
  using Clock = Operation::Clock;

  // Takes the workspace; nothing is allocated later but small strings. Both references must outlive it.
  Executor(const ExecutionPlan& plan, Transport& transport, int threads);
  // Waits until no other rank reads this one's memory (bounded by the transport's deadline).
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One attention of this rank's tensors. Fills times, traffic and tiles of the report. When it throws, the
  // other ranks have been told, none of them reads this rank's memory any more, and the executor is of no
  // further use.
  void run(const RankTensors& tensors, const std::function<void(double)>& progress, RankReport& report);

  // What it did. Any thread.
  Recorder& recorder() noexcept { return recorder_; }
  const Recorder& recorder() const noexcept { return recorder_; }

 private:
  // A parcel on its way here.
  struct Arriving {
    Parcel parcel;
    int from = -1;
    Slot* slot = nullptr;
    Transport::Request request = 0;
    Clock::time_point posted{};
    Recorder::Id record = 0;
    std::optional<Recorder::Id> forward{};  // that passes it on
  };

  void run_lap(std::uint32_t lap);
  void begin_lap();
  void pack_block(const Lap& lap, std::byte* block);
  void end_lap();
  void attend(const Step& step);
  void finish(const Step& step);

  Places& places(Cargo cargo) { return places_[static_cast<std::size_t>(cargo)]; }
  Lap units_of(const Parcel& parcel) const;
  std::int64_t bytes_of(const Parcel& parcel) const;
  // The accumulators of that rank's queries, made at their first use in a lap.
  QuerySet& queries_of(int owner);
  // Where the units of a share begin in a parcel that may carry more.
  const std::byte* part_of(const Held& held, const Parcel& parcel) const;

  Arriving post_receive(const Step& step, const Transfer& transfer);
  void forward(const Step& step, Arriving& arriving, int to);
  void receive(const Step& step, const Arriving& arriving);
  Transport::Received wait_for(const Step& step, const Arriving& arriving);
  void check_header(const Step& step, const Arriving& arriving, const Transport::Received& got) const;
  void take_in(const Arriving& arriving, std::span<const std::byte> payload);
  void send(const Step& step, const Transfer& transfer);
  Recorder::Id track_send(Transport::Request request, Operation operation, Slot& slot);
  void leave(Cargo cargo, int owner);
  void leave_used(int step);
  void free_slot(Slot& slot);
  void abandon(const std::string& reason) noexcept;

  Operation operation(Operation::What what, const Parcel& parcel, int step) const;
  // Does `work`, which may return what Tiles it met, as an operation that counts as computing.
  template <typename Work>
  void timed(Operation operation, Work work);
  // An operation that is over.
  void note(Operation operation, Clock::time_point from, Clock::time_point to, double& total);

  std::string label(const Parcel& parcel, int step) const;
  void report_progress(double done);

  const ExecutionPlan& plan_;
  Transport& transport_;
  Recorder recorder_;
  BlockAttention attention_;
  Relay relay_;
  std::vector<Places> places_;                      // by cargo
  std::vector<std::optional<QueryPanels>> panels_;  // by owner, of those whose queries come here
  std::vector<QuerySet> sets_;                      // by own slot of the accumulators
  int threads_;
  std::vector<Arriving> arriving_;  // in the step at hand
  std::vector<MetBlock> met_;       // in the meeting at hand

  // Of the call that runs.
  const RankTensors* tensors_ = nullptr;
  const std::function<void(double)>* progress_ = nullptr;
  RankReport* report_ = nullptr;
  std::uint32_t call_ = 0, lap_ = 0;
  double work_total_ = 0, work_done_ = 0;
};

}  // namespace kvring
