// A bus that transfers share: a few at full speed, more of them at equal parts.
#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace kvring {

// Processor sharing in virtual time: `work_` is the bytes that each transfer has moved since the beginning,
// so one that enters at work w with b bytes is over at work w + b, however many share. O(log transfers) per
// call.
class Bus {
 public:
  // `full` transfers at a time have `bytes_per_s` each.
  Bus(double bytes_per_s, double full) : bytes_per_s_(bytes_per_s), full_(full) {}

  void enter(double now, double bytes, int id) {
    advance(now);
    transfers_.emplace(work_ + bytes, id);
  }
  bool idle() const { return transfers_.empty(); }
  // When the next transfer is over if no other enters before; there must be one.
  double next_end() const { return now_ + std::max(0.0, transfers_.top().first - work_) / rate(); }
  // Takes that transfer out at its end; returns its id.
  int leave(double now) {
    advance(now);
    const auto [work, id] = transfers_.top();
    transfers_.pop();
    work_ = std::max(work_, work);  // what rounding left of it
    return id;
  }

 private:
  double rate() const { return bytes_per_s_ * std::min(1.0, full_ / static_cast<double>(transfers_.size())); }
  void advance(double now) {
    if (!transfers_.empty()) work_ += (now - now_) * rate();
    now_ = now;
  }

  using Transfer = std::pair<double, int>;
  double bytes_per_s_, full_;
  double now_ = 0, work_ = 0;
  std::priority_queue<Transfer, std::vector<Transfer>, std::greater<>> transfers_;
};

}  // namespace kvring
