#include "transport/inproc/world.h"

#include <fmt/format.h>

#include <new>

#include "kvring/error.h"

namespace kvring::inproc {

World::World(int ranks, double deadline_s)
    : ranks_(static_cast<std::size_t>(ranks)), clock_(deadline_s, ProgressClock::Clock::now()) {
  gather_.parts.resize(ranks_.size());
}

void World::wait(Lock& lock, int rank, const Wait& wait, bool guards_payload) {
  const ProgressClock::Clock::time_point began = ProgressClock::Clock::now();
  this->rank(rank).waiting = true;
  for (;;) {
    // Before anything else: after a failure the memory of a message that did arrive may be gone.
    if (failure_) throw_failure(lock, rank, guards_payload);
    const Outcome outcome = wait.poll();
    if (outcome == Outcome::kDone) break;
    if (outcome == Outcome::kNever) {
      stop(rank);
      throw TransportError(finished_text(rank, wait.what, wait.peers(), wait.finished()));
    }
    const ProgressClock::Clock::time_point now = ProgressClock::Clock::now();
    const ProgressClock::Clock::time_point expiry = clock_.expiry(began);
    if (now >= expiry) {
      stop(rank);
      blame_for_timeout();
      throw Timeout(timeout_text(rank, now - began, wait.what, wait.peers()));
    }
    this->rank(rank).wake.wait_until(lock, expiry);
  }
  this->rank(rank).waiting = false;
  clock_.note(ProgressClock::Clock::now());
}

// Whoever keeps the others waiting waits for nobody. A rank whose wait has thrown still counts as waiting: it
// is not what the others wait for.
void World::blame_for_timeout() {
  if (!verdict_.text.empty()) return;
  for (int r = 0; r < size(); ++r) {
    if (rank(r).waiting || rank(r).finished) continue;
    verdict_ = {r,
                0,
                fmt::format("rank {} keeps the others waiting: it computes outside of the ring, or hangs", r),
                {}};
    return;
  }
  verdict_ = {-1, 0, "all ranks wait for each other", {}};
}

void World::check(Lock& lock, int rank) {
  if (failure_) throw_failure(lock, rank, false);
}

void World::deliver(Lock& lock, int from, int to, const std::shared_ptr<Message>& message) {
  RankState& receiver = rank(to);
  Channel& channel = receiver.from[from];
  const std::uint64_t sequence = message->header.sequence;
  if (receiver.finished) {
    message->abandoned = true;
    message->loan.reset();
    return;
  }
  channel.arrived.emplace(sequence, message);
  receiver.wake.notify_all();
  if (auto forward = channel.forwards.extract(sequence)) pass_on(lock, to, forward.mapped(), *message);
}

void World::pass_on(Lock& lock, int by, const Forward& forward, const Message& message) {
  auto next = std::make_shared<Message>(Message{message.header, message.payload, message.loan});
  next->header.step += 1;
  next->header.sequence = forward.sequence;
  *forward.done = ProgressClock::Clock::now();
  rank(by).wake.notify_all();
  deliver(lock, by, forward.to, next);
}

void World::throw_failure(Lock& lock, int rank, bool guards_payload) {
  stop(rank);
  const ProgressClock::Clock::time_point began = ProgressClock::Clock::now();
  while (guards_payload && stopped_ < size()) {
    const ProgressClock::Clock::time_point expiry = clock_.expiry(began);
    if (ProgressClock::Clock::now() >= expiry) break;
    all_stopped_.wait_until(lock, expiry);
  }
  throw TransportError(*failure_);
}

void World::fail(Lock& /*held*/, int rank, const std::string& reason) noexcept {
  stop(rank);
  if (failure_) return;  // the first one is the cause, the others its consequences
  try {
    failure_ = failure_text(rank, reason);
    if (verdict_.text.empty()) verdict_ = {rank, 0, *failure_, {}};
  } catch (const std::bad_alloc&) {
    failure_.emplace();  // the others end all the same
  }
  failed_ = true;
  wake_all();
}

void World::finish(Lock& /*held*/, int rank) {
  stop(rank);
  this->rank(rank).finished = true;
  // Nobody reads what was on its way here.
  for (auto& [sender, channel] : this->rank(rank).from) {
    for (auto& [sequence, message] : channel.arrived) {
      message->abandoned = true;
      message->loan.reset();
    }
    channel.arrived.clear();
  }
  // What nobody has received yet is withdrawn: its memory may now go. What was only passed on is not this
  // rank's memory, and still arrives.
  for (RankState& receiver : ranks_) {
    const auto channel = receiver.from.find(rank);
    if (channel == receiver.from.end()) continue;
    std::erase_if(channel->second.arrived,
                  [&](const auto& entry) { return entry.second->loan->lender == rank; });
  }
  wake_all();
}

void World::stop(int rank) noexcept {
  RankState& state = this->rank(rank);
  if (state.stopped) return;
  state.stopped = true;
  if (++stopped_ == size()) all_stopped_.notify_all();
}

void World::wake_all() noexcept {
  for (RankState& state : ranks_) state.wake.notify_all();
}

}  // namespace kvring::inproc
