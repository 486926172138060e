// Ranks as threads of one process: a block travels as a pointer.
#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "kvring/error.h"
#include "kvring/transport.h"
#include "transport/inproc/world.h"

namespace kvring {
namespace {

using inproc::Channel;
using inproc::Ending;
using inproc::Forward;
using inproc::Gather;
using inproc::Loan;
using inproc::Message;
using inproc::World;

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~InprocTransport() override {
    World::Lock lock = world_->lock();
    for (auto& [request, pending] : pending_) {
      if (!pending.send && pending.message) pending.message->loan.reset();
    }
    world_->finish(lock, rank_);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return world_->size(); }
  const char* name() const noexcept override { return "inproc"; }
  bool passes_pointers() const noexcept override { return true; }

  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override;
  Request post_forward(Request receive, int to) override;
  Request post_receive(int from, std::span<std::byte> buffer) override;
  Received wait_receive(Request receive, const WaitLabel& what) override;
  void release(Request receive) override;
  void wait_send(Request send, const WaitLabel& what) override;
  std::optional<Clock::time_point> completed(Request request) const override;
  void progress() override;
  std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) override;
  void barrier(const WaitLabel& what) override { allgather({}, what); }
  void fail(const std::string& reason) noexcept override;
  Verdict verdict() const override;

 private:
  struct Pending {
    bool send = false;
    int peer = 0;  // of a forward, where it comes from
    std::uint64_t sequence = 0;
    std::shared_ptr<Message> message;  // of a receive: once it has been waited for
    // Of a send of this rank's own memory, when nobody reads it any more; of other memory, when it went on.
    Ending ended;
    bool own = false;
  };

  Pending& find(Request request, bool send);
  Request add(Pending pending);
  Outcome poll(const Pending& pending) const;
  std::shared_ptr<Loan> loan_of(std::span<const std::byte> payload) const;
  int missing_part(bool finished);
  std::string missing_parts();

  std::shared_ptr<World> world_;
  int rank_;
  Request next_ = 0;
  std::unordered_map<Request, Pending> pending_;
};

InprocTransport::Pending& InprocTransport::find(Request request, bool send) {
  const auto found = pending_.find(request);
  if (found == pending_.end() || found->second.send != send)
    throw Internal(
        fmt::format("rank {} has no {} with request {}", rank_, send ? "send" : "receive", request));
  return found->second;
}

Transport::Request InprocTransport::add(Pending pending) {
  pending_.emplace(next_, std::move(pending));
  return next_++;
}

// With the world locked.
Outcome InprocTransport::poll(const Pending& pending) const {
  if (pending.send) {
    if (pending.own && pending.message->abandoned) return Outcome::kNever;
    if (*pending.ended) return Outcome::kDone;
    return !pending.own && world_->rank(pending.peer).finished ? Outcome::kNever : Outcome::kPending;
  }
  const Channel& channel = world_->rank(rank_).from[pending.peer];
  if (pending.message || channel.arrived.contains(pending.sequence)) return Outcome::kDone;
  return world_->rank(pending.peer).finished ? Outcome::kNever : Outcome::kPending;
}

// The loan under which this rank reads the payload; null when it is this rank's own memory.
std::shared_ptr<Loan> InprocTransport::loan_of(std::span<const std::byte> payload) const {
  for (const auto& [request, pending] : pending_) {
    if (!pending.send && pending.message && pending.message->payload.data() == payload.data())
      return pending.message->loan;
  }
  return nullptr;
}

Transport::Request InprocTransport::post_send(int to, const MessageHeader& header,
                                              std::span<const std::byte> payload) {
  check_peer(to, rank_, size());
  auto message = std::make_shared<Message>(Message{header, payload, nullptr});
  World::Lock lock = world_->lock();
  message->loan = loan_of(payload);
  const bool own = message->loan == nullptr;
  if (own) message->loan = std::make_shared<Loan>(rank_, world_->rank(rank_).wake);
  const Ending ended = own ? message->loan->ended : std::make_shared<Ending::element_type>(Clock::now());
  message->header.sequence = world_->rank(to).from[rank_].sent++;
  message->header.bytes = payload.size();
  message->header.checksum = 0;
  world_->deliver(lock, rank_, to, message);
  return add({.send = true,
              .peer = to,
              .sequence = message->header.sequence,
              .message = message,
              .ended = ended,
              .own = own});
}

Transport::Request InprocTransport::post_forward(Request receive, int to) {
  check_peer(to, rank_, size());
  World::Lock lock = world_->lock();
  const Pending& source = find(receive, false);
  const Forward forward{to, world_->rank(to).from[rank_].sent++, std::make_shared<Ending::element_type>()};
  Channel& channel = world_->rank(rank_).from[source.peer];
  const auto arrived = channel.arrived.find(source.sequence);
  if (source.message)
    world_->pass_on(lock, rank_, forward, *source.message);
  else if (arrived != channel.arrived.end())
    world_->pass_on(lock, rank_, forward, *arrived->second);
  else
    channel.forwards.emplace(source.sequence, forward);
  return add({.send = true,
              .peer = source.peer,
              .sequence = forward.sequence,
              .message = nullptr,
              .ended = forward.done});
}

Transport::Request InprocTransport::post_receive(int from, std::span<std::byte> buffer) {
  check_peer(from, rank_, size());
  if (!buffer.empty())
    throw InvalidArgument(
        fmt::format("a receive buffer of {} bytes for a transport that passes pointers: give an empty one",
                    buffer.size()));
  const World::Lock lock = world_->lock();
  return add({.send = false,
              .peer = from,
              .sequence = world_->rank(rank_).from[from].posted++,
              .message = nullptr,
              .ended = nullptr});
}

Transport::Received InprocTransport::wait_receive(Request receive, const WaitLabel& what) {
  World::Lock lock = world_->lock();
  Pending& pending = find(receive, false);
  world_->wait(lock, rank_,
               Wait{.what = what,
                    .poll = [&] { return poll(pending); },
                    .peers = [&] { return from_rank(pending.peer); },
                    .finished = [&] { return pending.peer; }});
  if (!pending.message) {
    auto& arrived = world_->rank(rank_).from[pending.peer].arrived;
    pending.message = std::move(arrived.extract(pending.sequence).mapped());
  }
  return {pending.message->header, pending.message->payload, pending.message->sent, pending.message->sent};
}

void InprocTransport::release(Request receive) {
  const World::Lock lock = world_->lock();
  Pending& pending = find(receive, false);
  if (!pending.message)
    throw Internal(fmt::format("rank {} releases receive {} before it waited for it", rank_, receive));
  pending.message->loan.reset();
  pending_.erase(receive);
}

void InprocTransport::wait_send(Request send, const WaitLabel& what) {
  World::Lock lock = world_->lock();
  const Pending& pending = find(send, true);
  world_->wait(lock, rank_,
               Wait{.what = what,
                    .poll = [&] { return poll(pending); },
                    .peers = [&] { return to_rank(pending.peer); },
                    .finished = [&] { return pending.peer; }},
               /*guards_payload=*/true);
  pending_.erase(send);
}

std::optional<Transport::Clock::time_point> InprocTransport::completed(Request request) const {
  const World::Lock lock = world_->lock();
  const auto found = pending_.find(request);
  if (found == pending_.end()) throw Internal(fmt::format("rank {} has no request {}", rank_, request));
  const Pending& pending = found->second;
  if (pending.send) return *pending.ended;
  if (pending.message) return pending.message->sent;
  const auto& arrived = world_->rank(rank_).from[pending.peer].arrived;
  const auto message = arrived.find(pending.sequence);
  if (message == arrived.end()) return std::nullopt;
  return message->second->sent;
}

void InprocTransport::progress() {
  world_->clock().note(Clock::now());
  if (!world_->failed()) return;
  World::Lock lock = world_->lock();
  world_->check(lock, rank_);
}

Verdict InprocTransport::verdict() const {
  const World::Lock lock = world_->lock();
  return world_->verdict();
}

// The first rank whose part of the collective is missing, of those that have finished or of all; -1: none.
int InprocTransport::missing_part(bool finished) {
  for (int r = 0; r < size(); ++r) {
    if (finished && !world_->rank(r).finished) continue;
    if (!world_->gather().parts[static_cast<std::size_t>(r)]) return r;
  }
  return -1;
}

std::string InprocTransport::missing_parts() {
  const int others = size() - world_->gather().arrived - 1;
  const std::string first = from_rank(missing_part(false));
  return others == 0 ? first : fmt::format("{} and {} more", first, others);
}

std::vector<std::string> InprocTransport::allgather(const std::string& mine, const WaitLabel& what) {
  World::Lock lock = world_->lock();
  Gather& gather = world_->gather();
  const std::uint64_t generation = gather.generation;
  gather.parts[static_cast<std::size_t>(rank_)] = mine;
  if (++gather.arrived == size()) {
    std::vector<std::string> all;
    for (std::optional<std::string>& part : gather.parts) all.push_back(*std::exchange(part, std::nullopt));
    gather.result = std::make_shared<const std::vector<std::string>>(std::move(all));
    gather.arrived = 0;
    ++gather.generation;
    world_->wake_all();
  }
  const auto poll_gather = [&] {
    if (gather.generation != generation) return Outcome::kDone;
    return missing_part(true) < 0 ? Outcome::kPending : Outcome::kNever;
  };
  world_->wait(lock, rank_,
               Wait{.what = what,
                    .poll = poll_gather,
                    .peers = [&] { return missing_parts(); },
                    .finished = [&] { return missing_part(true); }});
  return *gather.result;
}

void InprocTransport::fail(const std::string& reason) noexcept {
  World::Lock lock = world_->lock();
  world_->fail(lock, rank_, reason);
}

}  // namespace

std::vector<std::unique_ptr<Transport>> make_inproc_transports(int ranks, double deadline_s) {
  constexpr int kMostRanks = 1024;
  if (ranks < 1 || ranks > kMostRanks)
    throw InvalidArgument(
        fmt::format("{} ranks in one process: from 1 to {} are possible", ranks, kMostRanks));
  const auto world = std::make_shared<World>(ranks, deadline_s);
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(std::make_unique<InprocTransport>(world, rank));
  return ends;
}

}  // namespace kvring
