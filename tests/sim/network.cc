#include "tests/sim/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kvring/error.h"
#include "transport/wire/block.h"

namespace kvring::sim {
namespace {

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<Fault> of_links(const std::vector<Fault>& faults) {
  std::vector<Fault> cuts;
  std::ranges::copy_if(faults, std::back_inserter(cuts), &Fault::of_link);
  return cuts;
}

bool concerns(const Fault& cut, int from, int to) {
  if (cut.kind == FaultKind::kIsolate) return from == cut.rank || to == cut.rank;
  return (from == cut.rank && to == cut.peer) || (from == cut.peer && to == cut.rank);
}

}  // namespace

Network::Network(Scheduler& scheduler, int ranks, const NetworkOptions& options, std::vector<Fault> faults,
                 std::uint64_t seed)
    : scheduler_(scheduler),
      options_(options),
      cuts_(of_links(faults)),
      injector_(std::move(faults)),
      rng_(seed),
      ends_(static_cast<std::size_t>(ranks)) {}

// A protocol that spins would never give the baton back: the call fails first, and if that does not help the
// program ends, since a thread cannot be stopped.
void Network::count_call() {
  if (++calls_ <= options_.most_calls) return;
  if (calls_ > 2 * options_.most_calls) {
    std::fprintf(stderr, "the simulated ring spins: %llu calls\n", static_cast<unsigned long long>(calls_));
    std::abort();
  }
  throw Internal("the simulated ring hangs");
}

Network::Slot& Network::add(int rank, wire::Operation& operation) {
  count_call();
  End& e = end(rank);
  if (e.free.empty()) {
    e.free.push_back(static_cast<std::uint32_t>(e.slots.size()));
    e.slots.emplace_back();
  }
  operation.index = e.free.back();
  e.free.pop_back();
  return e.slots[operation.index] = {};
}

// When what leaves now arrives.
Time Network::arrival(int from, int to, std::size_t bytes) {
  const Duration jitter(rng_.between(0, options_.jitter.count()));
  const Duration transfer(static_cast<Duration::rep>(options_.ns_per_byte * static_cast<double>(bytes)));
  const Time normal = now() + options_.latency + jitter + transfer;
  if (scheduler_.crashed(from) || scheduler_.crashed(to)) return kNever;
  Time arrives = normal;
  for (const Fault& cut : cuts_) {
    if (!concerns(cut, from, to) || now() < cut.at) continue;
    if (cut.length == Duration::max()) return kNever;
    if (now() < cut.at + cut.length) arrives = std::max(arrives, cut.at + cut.length + (normal - now()));
  }
  return arrives;
}

void Network::announce(int rank, Time at) {
  if (at == kNever) return;
  end(rank).events.insert(at);
  scheduler_.rouse(rank, at);
}

Network::MessagePointer Network::deliver(Parcel parcel, bool eager, std::size_t length) {
  const Time arrives = arrival(parcel.from, parcel.to, eager ? length : 0);
  auto message = std::make_shared<Message>();
  message->from = parcel.from;
  message->to = parcel.to;
  message->tag = parcel.tag;
  message->length = length;
  message->eager = eager;
  message->bytes = std::move(parcel.bytes);
  if (arrives == kNever) return message;
  Channel& channel = end(parcel.to).from[{parcel.tag, parcel.from}];
  channel.last = message->arrives = std::max(arrives + parcel.late, channel.last + Duration(1));
  channel.messages.push_back(message);
  if (parcel.late > Duration::zero()) last_delivery_ = std::max(last_delivery_, message->arrives);
  announce(parcel.to, message->arrives);
  return message;
}

void Network::dispatch(Class message_class, int from, int to, int tag, Slot* slot) {
  const std::span<const std::byte> bytes = slot->source;
  scheduler_.log((static_cast<std::uint64_t>(tag) << 32) ^ (static_cast<std::uint64_t>(from) << 16) ^
                 static_cast<std::uint64_t>(to) ^ (bytes.size() << 40));
  Parcel parcel{from, to, tag, {}, {}};
  // What a fault touches leaves at once: some buffer on the way held it.
  const bool touched = injector_.touches(message_class, parcel);
  const bool eager = touched || bytes.size() <= options_.longest_eager;
  if (eager) parcel.bytes = copy_of(bytes);
  std::vector<Parcel> arriving = injector_.apply(message_class, std::move(parcel), ranks());
  for (Parcel& p : arriving) {
    const std::size_t length = eager ? p.bytes.size() : bytes.size();
    const MessagePointer message = deliver(std::move(p), eager, length);
    if (!eager) slot->message = message;
  }
}

wire::Operation Network::send(int rank, int to, int tag, std::span<const std::byte> bytes, wire::Keep keep) {
  wire::Operation operation;
  Slot& slot = add(rank, operation);
  slot.doing = Doing::kSend;
  slot.peer = to;
  slot.source = bytes;
  slot.keep = std::move(keep);
  Channel& channel = end(to).from[{tag, rank}];
  const bool first = channel.sent++ == 0;
  const Class message_class = tag == wire::kControlTag ? Class::kControl
                              : first                  ? Class::kHeader
                                                       : Class::kPiece;
  dispatch(message_class, rank, to, tag, &slot);
  return operation;
}

wire::Operation Network::receive(int rank, int from, int tag, std::span<std::byte> buffer, wire::Keep keep) {
  wire::Operation operation;
  Slot& slot = add(rank, operation);
  slot.doing = Doing::kReceive;
  slot.peer = from;
  slot.tag = tag;
  slot.buffer = buffer;
  slot.keep = std::move(keep);
  end(rank).from[{tag, from}].receives.push_back(operation.index);
  match(rank, from, tag);
  return operation;
}

wire::Operation Network::allgather(int rank, std::shared_ptr<const wire::Gather> gather) {
  wire::Operation operation;
  Slot& slot = add(rank, operation);
  slot.doing = Doing::kGather;
  slot.tag = -1 - end(rank).gathers++;
  slot.gather = std::move(gather);
  Slot part;
  part.source = slot.gather->mine;
  for (int to = 0; to < ranks(); ++to) {
    if (to == rank) continue;
    Parcel parcel{rank, to, slot.tag, copy_of(part.source), {}};
    for (Parcel& p : injector_.apply(Class::kCollective, std::move(parcel), ranks())) {
      const std::size_t length = p.bytes.size();
      deliver(std::move(p), true, length);
    }
  }
  return operation;
}

// Gives receives the messages that have arrived.
void Network::match(int rank, int from, int tag) {
  Channel& channel = end(rank).from[{tag, from}];
  while (!channel.receives.empty() && !channel.messages.empty() &&
         channel.messages.front()->arrives <= now()) {
    const MessagePointer message = channel.messages.front();
    channel.messages.pop_front();
    end(rank).slots[channel.receives.front()].message = message;
    channel.receives.pop_front();
    if (message->eager) continue;
    message->called = arrival(rank, from, 0);
    announce(from, message->called);
  }
}

// A long message leaves once its sender knows of the receive.
void Network::push_out(int rank, Slot& slot) {
  Message& message = *slot.message;
  if (message.here != kNever || message.called > now()) return;
  message.here = arrival(rank, message.to, message.length);
  if (message.here == kNever) {
    message.called = kNever;  // it does not get through
    return;
  }
  message.bytes = copy_of(slot.source);
  announce(message.to, message.here);
  announce(rank, message.here);
}

void Network::check_peer(int rank, int peer) const {
  constexpr Duration kUntilReported = std::chrono::milliseconds(30);
  if (!options_.reports_crashes || peer < 0 || scheduler_.crashed(rank) || !scheduler_.crashed(peer)) return;
  if (now() - scheduler_.crashed_at(peer) < kUntilReported) return;
  throw TransportError(fmt::format("the connection to rank {} was lost", peer));
}

void Network::progress(int rank) {
  count_call();
  for (Slot& slot : end(rank).slots) {
    if (slot.doing == Doing::kReceive && !slot.message) match(rank, slot.peer, slot.tag);
    if (slot.doing == Doing::kSend && slot.message) push_out(rank, slot);
  }
}

std::optional<std::size_t> Network::poll_gather(int rank, const Slot& slot) {
  const wire::Gather& gather = *slot.gather;
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank) continue;
    check_peer(rank, r);
    const Channel& channel = end(rank).from[{slot.tag, r}];
    if (channel.messages.empty() || channel.messages.front()->arrives > now()) return std::nullopt;
  }
  for (int r = 0; r < ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const auto room = gather.all.subspan(static_cast<std::size_t>(gather.offsets[i]),
                                         static_cast<std::size_t>(gather.counts[i]));
    const std::span<const std::byte> part =
        r == rank ? gather.mine
                  : std::span<const std::byte>(end(rank).from[{slot.tag, r}].messages[0]->bytes);
    if (part.size() != room.size())
      throw TransportError(fmt::format("rank {}: a collective with {} bytes of rank {} where {} were due",
                                       rank, part.size(), r, room.size()));
    std::ranges::copy(part, room.begin());
  }
  return gather.all.size();
}

std::optional<std::size_t> Network::poll(int rank, Slot& slot) {
  if (slot.doing == Doing::kGather) return poll_gather(rank, slot);
  if (slot.doing == Doing::kSend) {
    check_peer(rank, slot.peer);
    if (!slot.message) return slot.source.size();
    push_out(rank, slot);
    return slot.message->here <= now() ? std::optional(slot.message->length) : std::nullopt;
  }
  if (slot.cancelled) return 0;
  match(rank, slot.peer, slot.tag);
  if (!slot.message || (!slot.message->eager && slot.message->here > now())) {
    check_peer(rank, slot.peer);
    return std::nullopt;
  }
  if (slot.message->length > slot.buffer.size())
    throw TransportError(fmt::format("a message of {} bytes for a receive of {} was truncated",
                                     slot.message->length, slot.buffer.size()));
  std::ranges::copy(slot.message->bytes, slot.buffer.begin());
  return slot.message->length;
}

std::optional<std::size_t> Network::test(int rank, wire::Operation& operation) {
  count_call();
  Slot& slot = end(rank).slots[operation.index];
  const bool counts = slot.doing != Doing::kSend && !slot.cancelled;
  const auto retire = [&] {
    slot = {};
    end(rank).free.push_back(operation.index);
    operation = {};
  };
  std::optional<std::size_t> bytes;
  try {
    bytes = poll(rank, slot);
  } catch (const TransportError&) {
    retire();
    throw;
  }
  if (!bytes) return bytes;
  if (counts && !scheduler_.crashed(rank)) last_delivery_ = std::max(last_delivery_, now());
  retire();
  return bytes;
}

void Network::cancel(int rank, const wire::Operation& operation) {
  Slot& slot = end(rank).slots[operation.index];
  if (slot.message) return;  // too late
  slot.cancelled = true;
  std::erase(end(rank).from[{slot.tag, slot.peer}].receives, operation.index);
}

std::optional<wire::Arrival> Network::take(int rank, int tag) {
  count_call();
  End& e = end(rank);
  Channel* earliest = nullptr;
  for (auto way = e.from.lower_bound({tag, 0}); way != e.from.end() && way->first.first == tag; ++way) {
    Channel& channel = way->second;
    if (channel.messages.empty() || channel.messages.front()->arrives > now()) continue;
    if (!earliest || channel.messages.front()->arrives < earliest->messages.front()->arrives)
      earliest = &channel;
  }
  if (earliest) {
    const MessagePointer message = earliest->messages.front();
    earliest->messages.pop_front();
    if (message->eager) {
      message->here = message->arrives;
    } else {
      message->called = arrival(rank, message->from, 0);
      announce(message->from, message->called);
    }
    e.taken.push_back(message);
  }
  for (auto taken = e.taken.begin(); taken != e.taken.end(); ++taken) {
    const MessagePointer message = *taken;
    if (message->here > now()) continue;
    e.taken.erase(taken);
    return wire::Arrival{message->from, std::string(reinterpret_cast<const char*>(message->bytes.data()),
                                                    message->bytes.size())};
  }
  return std::nullopt;
}

// Until something may have changed here, or a while has passed, ever longer while nothing comes: hardly to be
// told from looking again and again, but a thousand times cheaper.
void Network::nap(int rank, Duration time) {
  End& e = end(rank);
  const auto past = e.events.upper_bound(now());
  e.quiet = past == e.events.begin() ? std::min(8 * e.quiet, options_.longest_nap) : time;
  e.events.erase(e.events.begin(), past);
  const Time first = e.events.empty() ? kNever : *e.events.begin();
  scheduler_.nap(rank, std::max(now() + time, std::min(first, now() + e.quiet)));
}

void Network::leave(int rank) {
  for (Slot& slot : end(rank).slots) {
    if (slot.message && slot.doing == Doing::kSend && slot.message->here == kNever)
      slot.message->called = kNever;
    slot = {};
  }
}

}  // namespace kvring::sim
