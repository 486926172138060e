// A simulation at work: what every rank does, event by event.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <vector>

#include "planner/bus.h"
#include "planner/ports.h"
#include "planner/script.h"
#include "planner/shared_links.h"
#include "planner/simulate.h"
#include "planner/tiles.h"

namespace kvring {

// Laps of a run that are played.
struct Laps {
  std::int64_t played = 1;
  double units = 1;           // KV heads of each
  std::int64_t of_layer = 1;  // of which one layer has so many
  std::int64_t told = 0;      // how many of them are told of
};

class Player {
 public:
  Player(Script script, const Setting& setting, const SimulationOptions& options, const Laps& laps);

  // Bytes that script and player take at most, about: instructions, and what is under way at a time.
  static double memory_needed(ScheduleKind kind, const Setting& setting);

  Simulation play();

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  enum class Kind : std::uint8_t { kComputed, kEntered, kArrived, kBusDone };
  struct Event {
    double at;
    std::int32_t id;        // of the rank, the transfer, or the node of a bus
    std::uint32_t version;  // of what is foretold: a later one takes its place
    Kind kind;
    friend bool operator>(const Event& a, const Event& b) { return a.at > b.at; }
  };
  enum class Waits : std::uint8_t { kNothing, kSlot, kParcel, kDone };

  // A parcel from where either end has posted it until it was waited for.
  struct Carried {
    Script::Link ends;
    Cargo cargo = Cargo::kBlock;
    int owner = -1;
    int from_slot = -1, to_slot = -1;
    int forward = -1;  // the transfer that passes it on as it arrives
    int next = -1;     // of the link, of those that the same end has posted and the other not
    bool posted_both = false, is_there = false, arrived = false;  // is_there: the sender has the parcel
    double bytes = 0;                                             // with what the bus does not give it
    double slow = 1;                                              // times as long as it is described
    double busy_until = 0;                                        // its ends attend
    double ready_at = 0, posted_at = 0, began = 0;                // at the sender, at the receiver, under way
    double sent_at = 0;                                           // posted by the sender
    std::uint64_t order = 0;                                      // among the sender's
    std::uint32_t version = 0;                                    // of its arrival, over all that had the id
    Moment moment;                                                // that it waits for, then of its arrival
  };
  struct OpenLink {
    int first = -1, last = -1;  // posted by one end only
    bool sent = false;          // by the sender
  };
  struct SlotState {
    std::int32_t sends = 0;   // that are not over
    std::int16_t owner = -1;  // of the parcel that is held there
  };
  struct Places {
    SlotOrder order{{}, {}};
    std::vector<SlotState> slots;
  };

  struct Rank {
    std::size_t next = 0;  // instruction
    std::int64_t lap = 0;
    std::int32_t step = 0;
    Waits waits = Waits::kNothing;
    Cargo cargo = Cargo::kBlock;  // of the slot that it waits for or has taken
    std::size_t slot = 0;
    Moment now;
    double waits_since = 0;
    double pairs = 0, read_bytes = 0;  // to be attended next
    double taken_s = 0;                // from it, by the step's transfers
    double attended_at = 0;            // when it is over, or was
    std::vector<int> arriving;         // transfers of the step
    std::size_t waited = 0;            // how many of them have been waited for
    std::uint64_t sends = 0;
    std::array<Places, std::size(kCargos)> places;  // by cargo
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Carried& carried(int id) { return carried_[static_cast<std::size_t>(id)]; }
  static Places& places(Rank& r, Cargo cargo) { return r.places[static_cast<std::size_t>(cargo)]; }
  SlotState& slot(int rank, Cargo cargo, int index) {
    return places(at(rank), cargo).slots[static_cast<std::size_t>(index)];
  }
  // The slot where the parcel is held.
  int slot_of(Rank& r, Cargo cargo, int owner);
  // Of transfer or merge `which` of the rank's step (0 of one: the attending).
  double jitter(int rank, std::size_t which, std::uint64_t what) const;
  bool stopped(int rank, double now) const { return now >= stop_[static_cast<std::size_t>(rank)]; }

  void set_faults();
  void run(int rank);
  bool perform(int rank, const Instruction& instruction);  // false: the rank has to wait
  bool take(int rank, Cargo cargo, std::size_t slot);
  void post_receive(int rank, const Instruction& instruction);
  int post(std::int32_t link, bool sends, const Moment& now);
  int post_send(int rank, Cargo cargo, int owner, int from_slot, std::int32_t link);
  void now_ready(int id, const Moment& now);
  void set_out(int id);
  bool start(int id, double now, const Moment& freed);
  bool attend(int rank);
  bool wait_all(int rank);
  bool take_in(int rank, const Carried& c);
  void compute(int rank, double seconds);
  void arrives_at(int id, double when);
  void enter(int id, double now);
  void schedule_bus(int node);
  void arrive(int id, double now);
  void resume(int rank, int arrived);
  void end_step(Rank& r);
  bool end_lap(int rank);
  void handle(const Event& event);
  std::optional<Stall> find_stall() const;

  bool is_told(const Rank& r) const { return r.lap < laps_.told; }
  Operation operation(Operation::What what, const Rank& r, int step) const;
  Operation transfer(Operation::What what, const Carried& c);
  void tell(int rank, Operation o, double from, double to) const;
  void tell_computing(int rank, Operation o, double from);
  void tell_attend(int rank, double from);
  void tell_merge(int rank, const Carried& c, double from);
  void tell_transfer(const Carried& c);
  void tell_wait(int rank, const Operation& wait, double from, double to) const;

  const Setting& setting_;
  const SimulationOptions& options_;
  Laps laps_;
  Script script_;
  std::optional<TileCount> tiles_;  // where somebody listens
  std::vector<Rank> ranks_;
  std::vector<RankTimes> times_;
  std::vector<double> slow_rank_, slow_link_, stop_;
  Ports ports_;
  std::vector<OpenLink> links_;
  std::vector<Carried> carried_;
  std::vector<int> unused_;                  // of those
  std::vector<Bus> buses_;                   // by node; empty: transfers within a node do not share
  std::optional<SharedLinks> shared_links_;  // nothing: each rank of a node has a whole link to others
  std::vector<std::uint32_t> bus_version_;
  std::vector<double> lap_end_;  // of the last rank, by lap
  std::int64_t steps_over_ = 0;  // of all ranks and laps
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace kvring
