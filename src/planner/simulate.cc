#include "planner/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "kvring/error.h"
#include "planner/bus.h"
#include "planner/ports.h"
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

// Laps of a run that are played.
struct Laps {
  std::int64_t played = 1;
  double units = 1;  // KV heads of each
};

class Player {
 public:
  Player(Script script, const Setting& setting, const SimulationOptions& options, const Laps& laps);
  Simulation play();

 private:
  enum class Kind : std::uint8_t { kComputed, kEntered, kArrived, kBusDone };
  struct Event {
    double at;
    std::int32_t id;  // of the rank, the transfer, or the node of a bus
    std::uint32_t version;
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
    double bytes = 0;                                             // with what slows it
    double ready_at = 0, posted_at = 0, began = 0;                // at the sender, at the receiver, under way
    std::uint64_t order = 0;                                      // among the sender's
    std::int64_t lap = 0;                                         // of the receiver, like the step
    std::int32_t step = 0;
    Moment moment;  // that it waits for, then of its arrival
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
    SlotOrder order;
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
    std::vector<int> arriving;         // transfers of the step
    std::size_t waited = 0;            // how many of them have been waited for
    std::uint64_t sends = 0;
    std::vector<Places> places;  // by cargo
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
  double jitter(int rank, std::size_t which, std::uint64_t what) const {
    if (options_.jitter == 0) return 1;
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    const auto step = static_cast<std::uint64_t>(r.lap * script_.steps + r.step) * 2 + what;
    return 1 + options_.jitter *
                   even_random(options_.seed, static_cast<std::uint64_t>(rank) + which * ranks_.size(), step);
  }
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
  void schedule_bus(int node);
  void arrive(int id, double now);
  void resume(int rank, const Moment& now);
  bool end_lap(int rank);
  void handle(const Event& event);
  std::optional<Stall> find_stall() const;

  const Setting& setting_;
  const SimulationOptions& options_;
  Laps laps_;
  Script script_;
  std::vector<Rank> ranks_;
  std::vector<RankTimes> times_;
  std::vector<double> slow_rank_, slow_link_, stop_;
  Ports ports_;
  std::vector<OpenLink> links_;
  std::vector<Carried> carried_;
  std::vector<int> unused_;  // of those
  std::vector<Bus> buses_;   // by node; empty: transfers within a node do not share
  std::vector<std::uint32_t> bus_version_;
  std::vector<double> lap_end_;  // of the last rank, by lap
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

Player::Player(Script script, const Setting& s, const SimulationOptions& options, const Laps& laps)
    : setting_(s),
      options_(options),
      laps_(laps),
      script_(std::move(script)),
      ranks_(static_cast<std::size_t>(s.ranks())),
      times_(ranks_.size()),
      slow_rank_(ranks_.size(), 1),
      slow_link_(ranks_.size(), 1),
      stop_(ranks_.size(), kNever),
      ports_(s.network(),
             s.machine().between_nodes ? static_cast<int>(s.machine().between_nodes->links.value) : 1),
      links_(script_.links.size()),
      lap_end_(static_cast<std::size_t>(laps.played)) {
  set_faults();
  for (Rank& r : ranks_) {
    for (const Script::Slots& slots : script_.slots) {
      const SlotOrder order(slots.own, slots.arriving);
      r.places.push_back({order, std::vector<SlotState>(order.size())});
    }
  }
  const Network& network = s.network();
  if (!network.shares_bus()) return;
  for (int node = 0; node * network.per_node() < s.ranks(); ++node)
    buses_.emplace_back(s.machine().within_node.bytes_per_s.value, s.machine().within_node_links.value);
  bus_version_.resize(buses_.size());
}

void Player::set_faults() {
  const auto check = [&](int rank, double value, const char* what) {
    if (rank < 0 || rank >= setting_.ranks())
      throw InvalidArgument(fmt::format("--faults names rank {}; the ring has {}", rank, setting_.ranks()));
    if (!(value >= 0))
      throw InvalidArgument(fmt::format("the {} in --faults is {}; it must be 0 or more", what, value));
  };
  for (const Faults::Slow& slow : options_.faults.ranks) {
    check(slow.rank, slow.factor, "factor");
    slow_rank_[static_cast<std::size_t>(slow.rank)] *= slow.factor;
  }
  for (const Faults::Slow& slow : options_.faults.links) {
    check(slow.rank, slow.factor, "factor");
    slow_link_[static_cast<std::size_t>(slow.rank)] *= slow.factor;
  }
  for (const Faults::Stop& stop : options_.faults.stops) {
    check(stop.rank, stop.at_s, "time");
    stop_[static_cast<std::size_t>(stop.rank)] = stop.at_s;
  }
}

int Player::slot_of(Rank& r, Cargo cargo, int owner) {
  const std::vector<SlotState>& slots = places(r, cargo).slots;
  const auto& [own, arriving] = script_.slots[static_cast<std::size_t>(cargo)];
  const auto holds = [&](std::size_t i) { return i < slots.size() && slots[i].owner == owner; };
  const auto by_owner = static_cast<std::size_t>(owner);
  if (own.by_owner && holds(by_owner)) return owner;
  if (arriving.by_owner && holds(own.slots + by_owner)) return static_cast<int>(own.slots + by_owner);
  const std::size_t end = arriving.by_owner ? own.slots : slots.size();
  for (std::size_t i = own.by_owner ? own.slots : 0; i < end; ++i) {
    if (holds(i)) return static_cast<int>(i);
  }
  throw Internal(fmt::format("no {} of rank {} is held", cargo_name(cargo), owner));
}

// Until the rank has to wait, or has done its last lap.
void Player::run(int rank) {
  Rank& r = at(rank);
  const std::vector<Instruction>& instructions = script_.ranks[static_cast<std::size_t>(rank)];
  for (;;) {
    if (r.next == instructions.size()) {
      if (!end_lap(rank)) return;
    }
    if (!perform(rank, instructions[r.next++])) return;
  }
}

bool Player::perform(int rank, const Instruction& i) {
  Rank& r = at(rank);
  switch (i.kind) {
    case Instruction::Kind::kTake: {
      Places& p = places(r, i.cargo);
      const std::size_t slot = p.order.take_own(i.who);
      p.slots[slot].owner = i.who;
      return take(rank, i.cargo, slot);
    }
    case Instruction::Kind::kReceive:
      if (!take(rank, i.cargo, places(r, i.cargo).order.take_arriving(i.who))) return false;
      post_receive(rank, i);
      return true;
    case Instruction::Kind::kSend:
      now_ready(post_send(rank, i.cargo, i.who, slot_of(r, i.cargo, i.who), i.link), r.now);
      return true;
    case Instruction::Kind::kForward: {
      const int id = r.arriving[static_cast<std::size_t>(i.who)];
      const int forward = post_send(rank, i.cargo, carried(id).owner, carried(id).to_slot, i.link);
      carried(id).forward = forward;
      if (carried(id).arrived) now_ready(forward, carried(id).moment);
      return true;
    }
    case Instruction::Kind::kMeet:
      r.pairs += i.pairs;
      r.read_bytes += static_cast<double>(script_.bytes(Cargo::kBlock, i.who));
      return true;
    case Instruction::Kind::kAttend:
      return attend(rank);
    case Instruction::Kind::kLeave: {
      const auto slot = static_cast<std::size_t>(slot_of(r, i.cargo, i.who));
      places(r, i.cargo).slots[slot].owner = -1;
      places(r, i.cargo).order.leave(slot);
      return true;
    }
    case Instruction::Kind::kWait:
      return wait_all(rank);
  }
  return true;
}

// Waits until nothing is sent from the slot.
bool Player::take(int rank, Cargo cargo, std::size_t slot) {
  Rank& r = at(rank);
  r.cargo = cargo;
  r.slot = slot;
  if (places(r, cargo).slots[slot].sends == 0) return true;
  r.waits = Waits::kSlot;
  r.waits_since = r.now.at;
  return false;
}

// Into the slot that was taken.
void Player::post_receive(int rank, const Instruction& i) {
  Rank& r = at(rank);
  const int id = post(i.link, false, r.now);
  Carried& c = carried(id);
  c.cargo = i.cargo;
  c.owner = i.who;
  c.to_slot = static_cast<int>(r.slot);
  c.posted_at = r.now.at;
  c.lap = r.lap;
  c.step = r.step;
  c.bytes = static_cast<double>(script_.bytes(i.cargo, i.who)) * jitter(rank, r.arriving.size(), 1);
  if (rank == (c.ends.from + 1) % setting_.ranks())
    c.bytes *= slow_link_[static_cast<std::size_t>(c.ends.from)];
  r.arriving.push_back(id);
  set_out(id);
}

// What one end posts meets the first that the other has posted and nobody met.
int Player::post(std::int32_t link, bool sends, const Moment& now) {
  OpenLink& open = links_[static_cast<std::size_t>(link)];
  if (open.first >= 0 && open.sent != sends) {
    const int id = open.first;
    Carried& c = carried(id);
    open.first = c.next;
    c.posted_both = true;
    c.moment = later(c.moment, now);
    return id;
  }
  if (unused_.empty()) {
    unused_.push_back(static_cast<int>(carried_.size()));
    carried_.emplace_back();
  }
  const int id = unused_.back();
  unused_.pop_back();
  carried(id) = {};
  carried(id).ends = script_.links[static_cast<std::size_t>(link)];
  carried(id).moment = now;
  if (open.first < 0)
    open.first = id;
  else
    carried(open.last).next = id;
  open.last = id;
  open.sent = sends;
  return id;
}

int Player::post_send(int rank, Cargo cargo, int owner, int from_slot, std::int32_t link) {
  const int id = post(link, true, at(rank).now);
  Carried& c = carried(id);
  c.cargo = cargo;
  c.owner = owner;
  c.from_slot = from_slot;
  c.order = at(rank).sends++;
  ++slot(rank, cargo, from_slot).sends;
  return id;
}

void Player::now_ready(int id, const Moment& now) {
  Carried& c = carried(id);
  c.ready_at = now.at;
  c.is_there = true;
  c.moment = later(c.moment, now);
  set_out(id);
}

void Player::set_out(int id) {
  const Carried& c = carried(id);
  if (c.posted_both && c.is_there) ports_.want(id, c.ends.from, c.ends.to, c.order);
}

// What a stopped rank has to do with does not start.
bool Player::start(int id, double now, const Moment& freed) {
  Carried& c = carried(id);
  if (stopped(c.ends.from, now) || stopped(c.ends.to, now)) return false;
  c.moment = later(c.moment, freed);
  c.began = now;
  const bool crosses = setting_.network().crosses(c.ends.from, c.ends.to);
  if (crosses || buses_.empty())
    events_.push({now + setting_.network().message_s(crosses, c.bytes), id, 0, Kind::kArrived});
  else
    events_.push({now + setting_.machine().within_node.latency_s.value, id, 0, Kind::kEntered});
  return true;
}

bool Player::attend(int rank) {
  Rank& r = at(rank);
  const double pairs = std::exchange(r.pairs, 0) * script_.share, bytes = std::exchange(r.read_bytes, 0);
  if (!(pairs > 0)) return true;
  compute(rank, slow_rank_[static_cast<std::size_t>(rank)] * jitter(rank, 0, 0) *
                    setting_.attend_s(pairs, laps_.units, bytes));
  return false;
}

void Player::compute(int rank, double seconds) {
  Rank& r = at(rank);
  times_[static_cast<std::size_t>(rank)].compute_s += seconds;
  r.now.at += seconds;
  r.now.path.compute_s += seconds;
  events_.push({r.now.at, rank, 0, Kind::kComputed});
}

// One after the other. Ends the step when all have been taken in.
bool Player::wait_all(int rank) {
  Rank& r = at(rank);
  while (r.waited < r.arriving.size()) {
    const Carried& c = carried(r.arriving[r.waited]);
    if (!c.arrived) {
      r.waits = Waits::kParcel;
      r.waits_since = r.now.at;
      --r.next;
      return false;
    }
    r.now = later(r.now, c.moment);
    ++r.waited;
    if (take_in(rank, c)) continue;
    --r.next;
    return false;
  }
  unused_.insert(unused_.end(), r.arriving.begin(), r.arriving.end());
  r.arriving.clear();
  r.waited = 0;
  ++r.step;
  return true;
}

// False: merging takes its time.
bool Player::take_in(int rank, const Carried& c) {
  Rank& r = at(rank);
  if (c.cargo == Cargo::kBlock || c.cargo == Cargo::kQueries) {
    slot(rank, c.cargo, c.to_slot).owner = static_cast<std::int16_t>(c.owner);
    return true;
  }
  places(r, c.cargo).order.leave(static_cast<std::size_t>(c.to_slot));
  if (c.cargo == Cargo::kRows) return true;
  // Read, and added to what is read and written.
  const double bytes = 3 * static_cast<double>(script_.bytes(c.cargo, c.owner));
  compute(rank, slow_rank_[static_cast<std::size_t>(rank)] * jitter(rank, r.waited, 0) * bytes /
                    setting_.machine().memory_bytes_per_s.value);
  return false;
}

void Player::schedule_bus(int node) {
  Bus& bus = buses_[static_cast<std::size_t>(node)];
  const std::uint32_t version = ++bus_version_[static_cast<std::size_t>(node)];
  if (!bus.idle()) events_.push({bus.next_end(), node, version, Kind::kBusDone});
}

void Player::arrive(int id, double now) {
  Carried& c = carried(id);
  const auto [from, to] = c.ends;
  c.moment.at = now;
  c.moment.path.transfer_s += now - c.began;
  c.moment.path.transfers += 1;
  const Moment arrived = c.moment;
  ports_.release(from, to, arrived);
  if (stopped(from, now) || stopped(to, now)) return;
  c.arrived = true;
  if (c.forward >= 0) now_ready(c.forward, arrived);

  Rank& sender = at(from);
  const Cargo cargo = c.cargo;
  const int from_slot = c.from_slot;
  const bool last = --slot(from, cargo, from_slot).sends == 0;
  if (last && sender.waits == Waits::kSlot && sender.cargo == cargo && std::cmp_equal(sender.slot, from_slot))
    resume(from, arrived);
  Rank& receiver = at(to);
  if (receiver.waits == Waits::kParcel && receiver.arriving[receiver.waited] == id) resume(to, arrived);
}

// What the rank waited for has come.
void Player::resume(int rank, const Moment& now) {
  Rank& r = at(rank);
  RankTimes& times = times_[static_cast<std::size_t>(rank)];
  const double waited = now.at - r.waits_since;
  if (r.waits == Waits::kSlot) {
    times.send_s += waited;
  } else {
    const Carried& c = carried(r.arriving[r.waited]);
    // Sent as soon as there was room here, it would have come earlier by as much as its sender was late.
    const double late = std::max(0.0, c.ready_at - c.posted_at);
    const double transfer = std::clamp(now.at - late - r.waits_since, 0.0, waited);
    times.late_s += waited - transfer;
    times.transfer_s += transfer;
  }
  r.now = now;
  const bool receives = std::exchange(r.waits, Waits::kNothing) == Waits::kSlot;
  const Instruction& i = script_.ranks[static_cast<std::size_t>(rank)][r.next - 1];
  if (receives && i.kind == Instruction::Kind::kReceive) post_receive(rank, i);
  run(rank);
}

// False: it was the last.
bool Player::end_lap(int rank) {
  Rank& r = at(rank);
  double& end = lap_end_[static_cast<std::size_t>(r.lap)];
  end = std::max(end, r.now.at);
  r.next = 0;
  r.step = 0;
  if (++r.lap < laps_.played) return true;
  r.waits = Waits::kDone;
  times_[static_cast<std::size_t>(rank)].end_s = r.now.at;
  return false;
}

void Player::handle(const Event& event) {
  if (event.kind == Kind::kBusDone) {
    if (event.version != bus_version_[static_cast<std::size_t>(event.id)]) return;
    const int id = buses_[static_cast<std::size_t>(event.id)].leave(event.at);
    schedule_bus(event.id);
    return arrive(id, event.at);
  }
  if (event.kind == Kind::kArrived) return arrive(event.id, event.at);
  if (event.kind == Kind::kComputed) {
    if (!stopped(event.id, event.at)) run(event.id);
    return;
  }
  const int node = carried(event.id).ends.to / setting_.network().per_node();
  buses_[static_cast<std::size_t>(node)].enter(event.at, carried(event.id).bytes, event.id);
  schedule_bus(node);
}

// The rank that is the first to give up on a stopped one; or that itself, if nobody waits for it.
std::optional<Stall> Player::find_stall() const {
  std::optional<Stall> first;
  const auto add = [&](const Stall& stall) {
    const bool waits = stall.peer != stall.rank;
    if (!first || (waits && first->peer == first->rank) || (waits && stall.at_s < first->at_s)) first = stall;
  };
  for (int rank = 0; rank < setting_.ranks(); ++rank) {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    const double stop = stop_[static_cast<std::size_t>(rank)];
    if (r.waits == Waits::kDone) continue;
    if (stop != kNever) add({rank, rank, false, Cargo::kBlock, -1, r.lap, r.step, stop});
    if (stop != kNever || r.waits != Waits::kParcel) continue;
    const Carried& c = carried_[static_cast<std::size_t>(r.arriving[r.waited])];
    const double since = std::max(stop_[static_cast<std::size_t>(c.ends.from)], r.waits_since);
    add({rank, c.ends.from, true, c.cargo, c.owner, r.lap, r.step, since + options_.timeout_s});
  }
  // Sends that are not over, out of a slot that their rank waits for.
  for (const Carried& c : carried_) {
    if (c.arrived || c.from_slot < 0) continue;
    const Rank& r = ranks_[static_cast<std::size_t>(c.ends.from)];
    if (stop_[static_cast<std::size_t>(c.ends.from)] != kNever || r.waits != Waits::kSlot ||
        r.cargo != c.cargo || !std::cmp_equal(r.slot, c.from_slot))
      continue;
    const double since = std::max(stop_[static_cast<std::size_t>(c.ends.to)], r.waits_since);
    add({c.ends.from, c.ends.to, false, c.cargo, c.owner, r.lap, r.step, since + options_.timeout_s});
  }
  return first;
}

Simulation Player::play() {
  for (int rank = 0; rank < setting_.ranks(); ++rank) {
    at(rank).now.path.begins_at = rank;
    if (!stopped(rank, 0)) run(rank);
  }
  // What happens at one time happens together: only then is it clear whose turn it is on the network.
  for (double now = 0;; now = events_.top().at) {
    while (!events_.empty() && events_.top().at <= now) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    ports_.start_all([&](int id, const Moment& freed) { return start(id, now, freed); });
    if (events_.empty()) break;
  }
  Simulation simulation;
  simulation.ranks = times_;
  simulation.laps_played = laps_.played;
  simulation.steps = script_.steps;
  simulation.stall = find_stall();
  if (simulation.stall) return simulation;
  const Rank* last = &ranks_.front();
  for (const Rank& r : ranks_) {
    if (r.now.at >= last->now.at) last = &r;
  }
  simulation.played_s = last->now.at;
  simulation.path = last->now.path;
  simulation.path.ends_at = static_cast<int>(last - ranks_.data());
  const std::size_t laps = lap_end_.size();
  simulation.total_s = laps > 1 ? lap_end_[laps - 1] - lap_end_[laps - 2] : lap_end_[0];  // of one more lap
  return simulation;
}

}  // namespace

Simulation simulate(ScheduleKind kind, const Setting& s, const SimulationOptions& options) {
  const double ranks = s.ranks();
  const std::int64_t width = s.of(kind).memory.heads_per_lap;
  const std::int64_t laps = (s.units() + width - 1) / width * s.layers();
  Script script = make_script(kind, s);
  const double steps =
      std::max(ranks * static_cast<double>(script.steps), static_cast<double>(script.transfers));
  const auto played =
      std::min(laps, std::max<std::int64_t>(1, static_cast<std::int64_t>(options.most_steps / steps)));
  Simulation simulation = Player(std::move(script), s, options, {played, static_cast<double>(width)}).play();
  simulation.laps = laps;
  if (simulation.stall) return simulation;
  // The last lap of a layer may carry fewer heads.
  const double full_laps =
      static_cast<double>(s.units()) / static_cast<double>(width) * static_cast<double>(s.layers());
  simulation.total_s = simulation.played_s + (full_laps - static_cast<double>(played)) * simulation.total_s;
  const double alone = s.attend_s(s.of(kind).work.all_pairs, static_cast<double>(s.units()), 0) *
                       static_cast<double>(s.layers());
  simulation.efficiency = alone / (ranks * simulation.total_s);
  return simulation;
}

}  // namespace kvring
