#include "planner/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "kvring/error.h"
#include "planner/bus.h"
#include "planner/script.h"

namespace kvring {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The same numbers whatever the order of events: a hash of what they are for (splitmix64's finish).
double even_random(std::uint64_t seed, std::uint64_t rank, std::uint64_t step) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xbf58476d1ce4e5b9u + step * 0x94d049bb133111ebu + 1;
  for (const int shift : {30, 27}) x = (x ^ (x >> shift)) * 0xbf58476d1ce4e5b9u;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// A point in time and the chain of work that led to it.
struct Moment {
  double at = 0;
  CriticalPath path;
};
const Moment& later(const Moment& a, const Moment& b) { return a.at >= b.at ? a : b; }

class Player {
 public:
  Player(const Setting& setting, const SimulationOptions& options, std::int64_t laps);
  Simulation play();

 private:
  enum class Kind : std::uint8_t { kAttended, kEntered, kArrived, kBusDone };
  struct Event {
    double at;
    std::int32_t rank;  // that attends or receives; the node of a bus
    std::uint32_t version;
    Kind kind;
    friend bool operator>(const Event& a, const Event& b) { return a.at > b.at; }
  };
  enum class Waits : std::uint8_t { kNothing, kSlot, kOwnSlot, kBlock, kDone };
  struct Outgoing {
    Moment ready;
    int slot;
  };

  struct Rank {
    std::int64_t lap = 0;
    std::int32_t step = 0;
    int slot = 0;  // of the block at hand
    Waits waits = Waits::kNothing;
    Moment begin;  // of the step, then of attending, then its end
    double waits_since = 0;
    // The receive of the next block.
    bool posted = false, arrived = false, under_way = false;
    Moment posted_at, arrived_at;
    double started = 0, bytes = 0;
    std::vector<Outgoing> outgoing;  // sends that are not over, in order: a few
  };

  static bool sends_from(const Rank& r, int slot) {
    return std::any_of(r.outgoing.begin(), r.outgoing.end(),
                       [&](const Outgoing& o) { return o.slot == slot; });
  }

  const PlayedStep& step_of(const Rank& r, int rank) const { return script_.at(r.step, rank); }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  // Of what the rank does in its step: 0 computes, 1 receives.
  double jitter(int rank, std::uint64_t what) const {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    const auto step = static_cast<std::uint64_t>(r.lap * setting_.ranks() + r.step) * 2 + what;
    return 1 + options_.jitter * even_random(options_.seed, static_cast<std::uint64_t>(rank), step);
  }
  double block_bytes(int owner) const {
    return units_ *
           static_cast<double>(setting_.key_bytes() *
                               setting_.layouts().kv.shards[static_cast<std::size_t>(owner)].tokens());
  }
  bool stopped(int rank, double now) const { return now >= stop_[static_cast<std::size_t>(rank)]; }

  void begin_step(int rank, const Moment& now);
  void post_and_attend(int rank);
  void end_step(int rank, const Moment& now);
  void offer(int rank, int slot, const Moment& now);
  void try_transfer(int from);
  void schedule_bus(int node);
  void arrive(int rank, double now);
  void go_on(int rank, const Moment& now);
  void handle(const Event& event);
  std::optional<Stall> find_stall() const;

  const Setting& setting_;
  const SimulationOptions& options_;
  std::int64_t laps_;
  double units_;
  Script script_;
  std::vector<Rank> ranks_;
  std::vector<RankTimes> times_;
  std::vector<double> slow_rank_, slow_link_, stop_;
  std::vector<Bus> buses_;  // by node; empty: transfers within a node do not share
  std::vector<std::uint32_t> bus_version_;
  std::vector<double> lap_end_;  // of the last rank, by lap
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

Player::Player(const Setting& s, const SimulationOptions& options, std::int64_t laps)
    : setting_(s),
      options_(options),
      laps_(laps),
      units_(static_cast<double>(s.memory().heads_per_lap)),
      script_(make_script(s)),
      ranks_(static_cast<std::size_t>(s.ranks())),
      times_(ranks_.size()),
      slow_rank_(ranks_.size(), 1),
      slow_link_(ranks_.size(), 1),
      stop_(ranks_.size(), kNever),
      lap_end_(static_cast<std::size_t>(laps)) {
  const auto check = [&](int rank, double value, const char* what) {
    if (rank < 0 || rank >= s.ranks())
      throw InvalidArgument(fmt::format("--faults names rank {}; the ring has {}", rank, s.ranks()));
    if (!(value >= 0))
      throw InvalidArgument(fmt::format("the {} in --faults is {}; it must be 0 or more", what, value));
  };
  for (const Faults::Slow& slow : options.faults.ranks) {
    check(slow.rank, slow.factor, "factor");
    slow_rank_[static_cast<std::size_t>(slow.rank)] *= slow.factor;
  }
  for (const Faults::Slow& slow : options.faults.links) {
    check(slow.rank, slow.factor, "factor");
    slow_link_[static_cast<std::size_t>(slow.rank)] *= slow.factor;
  }
  for (const Faults::Stop& stop : options.faults.stops) {
    check(stop.rank, stop.at_s, "time");
    stop_[static_cast<std::size_t>(stop.rank)] = stop.at_s;
  }
  const Network& network = s.network();
  if (!network.shares_bus()) return;
  for (int node = 0; node * network.per_node() < s.ranks(); ++node)
    buses_.emplace_back(s.machine().within_node.bytes_per_s.value, s.machine().within_node_links.value);
  bus_version_.resize(buses_.size());
}

// The own block of a lap is there from its begin; others went on as they arrived.
void Player::begin_step(int rank, const Moment& now) {
  Rank& r = at(rank);
  r.begin = now;
  const PlayedStep& step = step_of(r, rank);
  if (r.step == 0 && step.sends) offer(rank, r.slot, now);
  if (step.receive_block >= 0 && sends_from(r, 1 - r.slot)) {
    r.waits = Waits::kSlot;
    r.waits_since = now.at;
    return;
  }
  post_and_attend(rank);
}

void Player::post_and_attend(int rank) {
  Rank& r = at(rank);
  const PlayedStep& step = step_of(r, rank);
  r.waits = Waits::kNothing;
  const Moment begin = r.begin;
  if (step.pairs > 0) {
    const double seconds = slow_rank_[static_cast<std::size_t>(rank)] * jitter(rank, 0) *
                           setting_.attend_s(step.pairs, units_, block_bytes(step.block));
    times_[static_cast<std::size_t>(rank)].compute_s += seconds;
    r.begin.at += seconds;
    r.begin.path.compute_s += seconds;
  }
  events_.push({r.begin.at, rank, 0, Kind::kAttended});
  if (step.receive_block >= 0) {
    r.posted = true;
    r.posted_at = begin;
    try_transfer(script_.from[static_cast<std::size_t>(rank)]);
  }
}

// A block at this rank may go on.
void Player::offer(int rank, int slot, const Moment& now) {
  at(rank).outgoing.push_back({now, slot});
  try_transfer(rank);
}

void Player::try_transfer(int from) {
  const int to = script_.to[static_cast<std::size_t>(from)];
  Rank& sender = at(from);
  Rank& receiver = at(to);
  if (sender.outgoing.empty() || !receiver.posted || receiver.under_way) return;
  receiver.under_way = true;
  receiver.arrived_at = later(sender.outgoing.front().ready, receiver.posted_at);
  receiver.started = receiver.arrived_at.at;
  receiver.bytes = block_bytes(step_of(receiver, to).receive_block) * jitter(to, 1) *
                   slow_link_[static_cast<std::size_t>(from)];
  const bool crosses = setting_.network().crosses(from, to);
  if (crosses || buses_.empty()) {
    const double ends = receiver.started + setting_.network().message_s(crosses, receiver.bytes);
    events_.push({ends, to, 0, Kind::kArrived});
  } else {
    events_.push({receiver.started + setting_.machine().within_node.latency_s.value, to, 0, Kind::kEntered});
  }
}

void Player::schedule_bus(int node) {
  Bus& bus = buses_[static_cast<std::size_t>(node)];
  const std::uint32_t version = ++bus_version_[static_cast<std::size_t>(node)];
  if (!bus.idle()) events_.push({bus.next_end(), node, version, Kind::kBusDone});
}

void Player::arrive(int rank, double now) {
  const int from = script_.from[static_cast<std::size_t>(rank)];
  Rank& receiver = at(rank);
  Rank& sender = at(from);
  if (stopped(rank, now) || stopped(from, now)) return;
  const double seconds = now - receiver.started;
  receiver.arrived_at.at = now;
  receiver.arrived_at.path.transfer_s += seconds;
  receiver.arrived_at.path.transfers += 1;
  receiver.posted = receiver.under_way = false;
  receiver.arrived = true;
  const Moment arrived = receiver.arrived_at;

  sender.outgoing.erase(sender.outgoing.begin());
  if (script_.at(receiver.step + 1, rank).sends) offer(rank, 1 - receiver.slot, arrived);
  go_on(from, arrived);
  if (receiver.waits == Waits::kBlock) end_step(rank, later(arrived, receiver.begin));
}

// A send of the rank is over, for which it may have waited.
void Player::go_on(int rank, const Moment& now) {
  Rank& r = at(rank);
  const bool own = r.waits == Waits::kOwnSlot;
  if (!own && r.waits != Waits::kSlot) return;
  if (sends_from(r, own ? r.slot : 1 - r.slot)) return;
  times_[static_cast<std::size_t>(rank)].send_s += now.at - r.waits_since;
  r.begin = now;
  own ? begin_step(rank, now) : post_and_attend(rank);
}

// Attended, and the next block is here if there is one.
void Player::end_step(int rank, const Moment& now) {
  Rank& r = at(rank);
  if (r.waits == Waits::kBlock) {
    RankTimes& times = times_[static_cast<std::size_t>(rank)];
    const double started = std::clamp(r.started, r.waits_since, now.at);
    times.late_s += started - r.waits_since;
    times.transfer_s += now.at - started;
  }
  r.waits = Waits::kNothing;
  if (r.arrived) r.slot = 1 - r.slot;
  r.arrived = false;
  if (++r.step < setting_.ranks()) return begin_step(rank, now);
  double& lap_end = lap_end_[static_cast<std::size_t>(r.lap)];
  lap_end = std::max(lap_end, now.at);
  r.step = 0;
  if (++r.lap == laps_) {
    r.waits = Waits::kDone;
    r.begin = now;
    times_[static_cast<std::size_t>(rank)].end_s = now.at;
    return;
  }
  // Laps take the slots in turn; by now no block is at hand.
  r.slot = static_cast<int>(r.lap % 2);
  if (!sends_from(r, r.slot)) return begin_step(rank, now);
  r.waits = Waits::kOwnSlot;
  r.waits_since = now.at;
  r.begin = now;
}

void Player::handle(const Event& event) {
  if (event.kind == Kind::kBusDone) {
    if (event.version != bus_version_[static_cast<std::size_t>(event.rank)]) return;
    const int rank = buses_[static_cast<std::size_t>(event.rank)].leave(event.at);
    schedule_bus(event.rank);
    return arrive(rank, event.at);
  }
  Rank& r = at(event.rank);
  if (stopped(event.rank, event.at)) return;
  switch (event.kind) {
    case Kind::kAttended: {
      const bool waits = step_of(r, event.rank).receive_block >= 0 && !r.arrived;
      if (!waits) return end_step(event.rank, r.arrived ? later(r.begin, r.arrived_at) : r.begin);
      r.waits = Waits::kBlock;
      r.waits_since = event.at;
      return;
    }
    case Kind::kEntered: {
      const int node = event.rank / setting_.network().per_node();
      buses_[static_cast<std::size_t>(node)].enter(event.at, r.bytes, event.rank);
      return schedule_bus(node);
    }
    default:
      return arrive(event.rank, event.at);
  }
}

// The neighbour of a stopped rank that is the first to give up; or the stopped rank, if nobody waits for it.
std::optional<Stall> Player::find_stall() const {
  std::optional<Stall> first;
  for (int rank = 0; rank < setting_.ranks(); ++rank) {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    if (r.waits == Waits::kDone) continue;
    Stall stall{rank, rank, false, -1, r.lap, r.step, stop_[static_cast<std::size_t>(rank)]};
    if (stall.at_s == kNever) {
      stall.receives = r.waits == Waits::kBlock;
      stall.peer = (stall.receives ? script_.from : script_.to)[static_cast<std::size_t>(rank)];
      stall.block = step_of(r, rank).receive_block;
      stall.at_s = std::max(stop_[static_cast<std::size_t>(stall.peer)], r.waits_since) + options_.timeout_s;
    }
    const bool waits = stall.peer != rank;
    if (!first || (waits && first->peer == first->rank) || (waits && stall.at_s < first->at_s)) first = stall;
  }
  return first;
}

Simulation Player::play() {
  for (int rank = 0; rank < setting_.ranks(); ++rank) {
    Moment start;
    start.path.begins_at = rank;
    begin_step(rank, start);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    handle(event);
  }
  Simulation simulation;
  simulation.ranks = times_;
  simulation.laps_played = laps_;
  simulation.stall = find_stall();
  if (simulation.stall) return simulation;
  const Rank* last = &ranks_.front();
  for (const Rank& r : ranks_) {
    if (r.begin.at >= last->begin.at) last = &r;
  }
  simulation.played_s = last->begin.at;
  simulation.path = last->begin.path;
  simulation.path.ends_at = static_cast<int>(last - ranks_.data());
  const std::size_t laps = lap_end_.size();
  simulation.total_s = laps > 1 ? lap_end_[laps - 1] - lap_end_[laps - 2] : lap_end_[0];  // of one more lap
  return simulation;
}

}  // namespace

Simulation simulate(const Setting& s, const SimulationOptions& options) {
  const double ranks = s.ranks();
  const std::int64_t width = s.memory().heads_per_lap;
  const std::int64_t laps = (s.units() + width - 1) / width * s.layers();
  const auto played = std::min(
      laps, std::max<std::int64_t>(1, static_cast<std::int64_t>(options.most_steps / (ranks * ranks))));
  Simulation simulation = Player(s, options, played).play();
  simulation.laps = laps;
  if (simulation.stall) return simulation;
  // The last lap of a layer may carry fewer heads.
  const double full_laps =
      static_cast<double>(s.units()) / static_cast<double>(width) * static_cast<double>(s.layers());
  simulation.total_s = simulation.played_s + (full_laps - static_cast<double>(played)) * simulation.total_s;
  const double alone =
      s.attend_s(s.work().all_pairs, static_cast<double>(s.units()), 0) * static_cast<double>(s.layers());
  simulation.efficiency = alone / (ranks * simulation.total_s);
  return simulation;
}

}  // namespace kvring
