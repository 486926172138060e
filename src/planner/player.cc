#include "planner/player.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kvring/error.h"

namespace kvring {
namespace {

// The same numbers whatever the order of events: a hash of what they are for (splitmix64's finish).
double even_random(std::uint64_t seed, std::uint64_t rank, std::uint64_t step) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xbf58476d1ce4e5b9u + step * 0x94d049bb133111ebu + 1;
  for (const int shift : {30, 27}) x = (x ^ (x >> shift)) * 0xbf58476d1ce4e5b9u;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

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
      ports_(s.network()),
      links_(script_.links.size()),
      lap_end_(static_cast<std::size_t>(laps.played)) {
  set_faults();
  if (laps_.told > 0) tiles_.emplace(s.problem(), s.layouts());
  for (Rank& r : ranks_) {
    for (const Cargo cargo : kCargos) {
      const auto& [own, arriving] = script_.slots[static_cast<std::size_t>(cargo)];
      const SlotOrder order(own, arriving);
      places(r, cargo) = {order, std::vector<SlotState>(order.size())};
    }
  }
  const Network& network = s.network();
  const int nodes = (s.ranks() + network.per_node() - 1) / network.per_node();
  if (network.crosses_nodes() && network.per_node() > s.machine().between_nodes->links.value)
    shared_links_.emplace(nodes, network.hop_bytes_per_s(true), s.machine().between_nodes->links.value,
                          network.busy_share(true));
  if (!network.shares_bus()) return;
  for (int node = 0; node < nodes; ++node)
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

double Player::jitter(int rank, std::size_t which, std::uint64_t what) const {
  if (options_.jitter == 0) return 1;
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  const auto step = static_cast<std::uint64_t>(r.lap * script_.steps + r.step) * 2 + what;
  return 1 + options_.jitter *
                 even_random(options_.seed, static_cast<std::uint64_t>(rank) + which * ranks_.size(), step);
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
  c.bytes = static_cast<double>(script_.bytes(i.cargo, i.who));
  c.slow = jitter(rank, r.arriving.size(), 1);
  if (rank == (c.ends.from + 1) % setting_.ranks())
    c.slow *= slow_link_[static_cast<std::size_t>(c.ends.from)];
  r.taken_s +=
      setting_.network().link(setting_.network().crosses(c.ends.from, rank)).computing_s_per_byte.value *
      c.bytes;
  r.arriving.push_back(id);
  set_out(id);
}

bool Player::attend(int rank) {
  Rank& r = at(rank);
  const double pairs = std::exchange(r.pairs, 0) * script_.share, bytes = std::exchange(r.read_bytes, 0);
  if (!(pairs > 0)) return true;
  const double began = r.now.at;
  compute(rank, slow_rank_[static_cast<std::size_t>(rank)] * jitter(rank, 0, 0) *
                    (setting_.attend_s(pairs, laps_.units, bytes) + std::exchange(r.taken_s, 0)));
  r.attended_at = r.now.at;
  if (is_told(r)) tell_attend(rank, began);
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
  end_step(r);
  return true;
}

void Player::end_step(Rank& r) {
  r.arriving.clear();
  r.waited = 0;
  r.taken_s = 0;  // waiting loses nothing
  ++r.step;
  constexpr std::int64_t kTellEach = 4096;
  if (++steps_over_ % kTellEach != 0 || !options_.progress) return;
  const std::int64_t all = script_.steps * laps_.played * static_cast<std::int64_t>(ranks_.size());
  options_.progress(static_cast<double>(steps_over_) / static_cast<double>(all));
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
  const double began = r.now.at;
  compute(rank, slow_rank_[static_cast<std::size_t>(rank)] * jitter(rank, r.waited, 0) * bytes /
                    setting_.machine().memory_bytes_per_s.value);
  if (is_told(r)) tell_merge(rank, c, began);
  return false;
}

// The transfer that the rank waited for is over.
void Player::resume(int rank, int arrived) {
  Rank& r = at(rank);
  RankTimes& times = times_[static_cast<std::size_t>(rank)];
  const Carried& c = carried(arrived);
  const Moment& now = c.moment;
  const double waited = now.at - r.waits_since;
  if (r.waits == Waits::kSlot) {
    times.send_s += waited;
    if (is_told(at(c.ends.to)))
      tell_wait(rank, transfer(Operation::What::kWaitSend, c), r.waits_since, now.at);
  } else {
    // Sent as soon as there was room here, it would have come earlier by as much as its sender was late.
    const double late = std::max(0.0, c.ready_at - c.posted_at);
    const double on_its_way = std::clamp(now.at - late - r.waits_since, 0.0, waited);
    times.late_s += waited - on_its_way;
    times.transfer_s += on_its_way;
    if (is_told(r)) {
      tell_wait(rank, transfer(Operation::What::kWaitLate, c), r.waits_since, now.at - on_its_way);
      tell_wait(rank, transfer(Operation::What::kWaitTransfer, c), now.at - on_its_way, now.at);
    }
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
  if (event.kind == Kind::kArrived) {
    if (event.version == carried(event.id).version) arrive(event.id, event.at);
    return;
  }
  if (event.kind == Kind::kComputed) {
    if (!stopped(event.id, event.at)) run(event.id);
    return;
  }
  enter(event.id, event.at);
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

}  // namespace kvring
