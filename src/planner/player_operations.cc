// What a player tells of its ranks to who listens.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "planner/player.h"

namespace kvring {
namespace {

Operation::Clock::time_point time_of(double seconds) {
  return Operation::Clock::time_point(std::chrono::nanoseconds(std::llround(seconds * 1e9)));
}

}  // namespace

Operation Player::operation(Operation::What what, const Rank& r, int step) const {
  return {.what = what,
          .call = static_cast<std::uint32_t>(r.lap / laps_.of_layer),
          .lap = static_cast<std::uint32_t>(r.lap % laps_.of_layer),
          .step = step};
}

void Player::tell(int rank, Operation o, double from, double to) const {
  o.posted = time_of(from);
  o.done = time_of(to);
  options_.tell(rank, o);
}

// What a stopped rank was at, it never ends.
void Player::tell_computing(int rank, Operation o, double from) {
  tell(rank, o, from, std::min(at(rank).now.at, stop_[static_cast<std::size_t>(rank)]));
}

// After the last instruction that the rank performed, which attends blocks that those before it name.
void Player::tell_attend(int rank, double from) {
  const Rank& r = at(rank);
  const std::vector<Instruction>& instructions = script_.ranks[static_cast<std::size_t>(rank)];
  const int queries = instructions[r.next - 1].who;
  const auto units = static_cast<std::int64_t>(std::llround(laps_.units * script_.share));
  Operation attend = operation(Operation::What::kAttend, r, r.step);
  if (queries != rank) attend.queries = queries;
  for (std::size_t i = r.next - 1; i > 0 && instructions[i - 1].kind == Instruction::Kind::kMeet; --i) {
    attend.block = instructions[i - 1].who;
    const Operation::Tiles tiles = tiles_->of(queries, attend.block);
    attend.tiles.full += units * tiles.full;
    attend.tiles.partial += units * tiles.partial;
    attend.tiles.skipped += units * tiles.skipped;
  }
  tell_computing(rank, attend, from);
}

void Player::tell_merge(int rank, const Carried& c, double from) {
  Operation merge = operation(Operation::What::kMerge, at(rank), static_cast<int>(script_.steps) - 1);
  merge.cargo = c.cargo;
  merge.block = c.owner;
  tell_computing(rank, merge, from);
}

// As both ends name it. Until it was waited for, the receiver is in the step that it is received in.
Operation Player::transfer(Operation::What what, const Carried& c) {
  const Rank& receiver = at(c.ends.to);
  Operation o = operation(what, receiver, receiver.step + 1);
  o.cargo = c.cargo;
  o.block = c.owner;
  const bool sends = what == Operation::What::kSend || what == Operation::What::kWaitSend;
  o.peer = sends ? c.ends.to : c.ends.from;
  return o;
}

void Player::tell_transfer(const Carried& c) {
  Operation send = transfer(Operation::What::kSend, c), receive = transfer(Operation::What::kReceive, c);
  send.bytes = receive.bytes = script_.bytes(c.cargo, c.owner);
  send.began = receive.began = time_of(c.ready_at);
  tell(c.ends.from, send, c.sent_at, c.moment.at);
  tell(c.ends.to, receive, c.posted_at, c.moment.at);
}

void Player::tell_wait(int rank, const Operation& wait, double from, double to) const {
  if (to > from) tell(rank, wait, from, to);
}

}  // namespace kvring
