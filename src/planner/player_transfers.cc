// How a player carries parcels from rank to rank.
#include <algorithm>
#include <utility>

#include "planner/player.h"

namespace kvring {

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
  const std::uint32_t version = carried(id).version;
  carried(id) = {};
  carried(id).version = version;
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
  c.sent_at = at(rank).now.at;
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
  const Network& network = setting_.network();
  const bool crosses = network.crosses(c.ends.from, c.ends.to);
  c.busy_until = std::max(at(c.ends.from).attended_at, at(c.ends.to).attended_at);
  const double computing_s = std::max(0.0, c.busy_until - now);
  const double latency_s = c.slow * network.link(crosses).latency_s.value;
  if (crosses ? shared_links_.has_value() : !buses_.empty()) {
    c.bytes *= c.slow;
    if (!crosses) {
      // What it does not get beside computing, as if there were more of it.
      const double rate = network.hop_bytes_per_s(false), alone_s = latency_s + c.bytes / rate;
      c.bytes += rate * (network.beside_s(false, alone_s, computing_s) - alone_s);
    }
    events_.push({now + latency_s, id, 0, Kind::kEntered});
  } else {
    const double alone_s = c.slow * network.message_s(crosses, c.bytes);
    arrives_at(id, now + network.beside_s(crosses, alone_s, computing_s));
  }
  return true;
}

void Player::arrives_at(int id, double when) {
  events_.push({when, id, ++carried(id).version, Kind::kArrived});
}

// The transfer has its share of what it goes over from now on.
void Player::enter(int id, double now) {
  const Carried& c = carried(id);
  const int per_node = setting_.network().per_node(), from = c.ends.from / per_node,
            to = c.ends.to / per_node;
  if (from != to) {
    shared_links_->enter(now, id, {from, to}, c.bytes, c.busy_until,
                         [&](int other, double end) { arrives_at(other, end); });
    return;
  }
  buses_[static_cast<std::size_t>(to)].enter(now, c.bytes, id);
  schedule_bus(to);
}

void Player::schedule_bus(int node) {
  Bus& bus = buses_[static_cast<std::size_t>(node)];
  const std::uint32_t version = ++bus_version_[static_cast<std::size_t>(node)];
  if (!bus.idle()) events_.push({bus.next_end(), node, version, Kind::kBusDone});
}

void Player::arrive(int id, double now) {
  Carried& c = carried(id);
  const auto [from, to] = c.ends;
  if (shared_links_ && setting_.network().crosses(from, to))
    shared_links_->leave(now, id, [&](int other, double end) { arrives_at(other, end); });
  c.moment.at = now;
  c.moment.path.transfer_s += now - c.began;
  c.moment.path.transfers += 1;
  const Moment arrived = c.moment;
  ports_.release(from, to, arrived);
  if (stopped(from, now) || stopped(to, now)) return;
  c.arrived = true;
  if (is_told(at(to))) tell_transfer(c);
  if (c.forward >= 0) now_ready(c.forward, arrived);

  Rank& sender = at(from);
  const Cargo cargo = c.cargo;
  const int from_slot = c.from_slot;
  const bool last = --slot(from, cargo, from_slot).sends == 0;
  if (last && sender.waits == Waits::kSlot && sender.cargo == cargo && std::cmp_equal(sender.slot, from_slot))
    resume(from, id);
  Rank& receiver = at(to);
  if (receiver.waits == Waits::kParcel && receiver.arriving[receiver.waited] == id) resume(to, id);
}

}  // namespace kvring
