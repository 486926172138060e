// The links of nodes, which the messages of their ranks share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "planner/network.h"

namespace kvring {

// A node has `links` out and as many in. Messages that are more share them equally; each has at most a whole
// one, and no more than its share at either of its ends: what the other end leaves unused of a share, others
// do not get. O(messages of both nodes) per call.
class SharedLinks {
 public:
  struct Ends {
    int from = 0, to = 0;  // nodes
  };

  // While its ranks compute, a message has only `busy_share` of what it has otherwise.
  SharedLinks(int nodes, double bytes_per_s, double links, double busy_share)
      : bytes_per_s_(bytes_per_s),
        links_(links),
        busy_share_(busy_share),
        out_(idx(nodes)),
        in_(idx(nodes)) {}

  // The message is under way from now on, its ranks compute until `busy_until`. Calls ends_at(id, when) for
  // it, and for each whose end that changes.
  template <typename EndsAt>
  void enter(double now, int id, Ends ends, double bytes, double busy_until, EndsAt ends_at) {
    if (idx(id) >= messages_.size()) messages_.resize(idx(id) + 1);
    messages_[idx(id)] = {ends, bytes, 0, now, busy_until};
    out_[idx(ends.from)].push_back(id);
    in_[idx(ends.to)].push_back(id);
    deal_out(now, ends, ends_at);
  }
  // It is over.
  template <typename EndsAt>
  void leave(double now, int id, EndsAt ends_at) {
    const Ends ends = messages_[idx(id)].ends;
    std::erase(out_[idx(ends.from)], id);
    std::erase(in_[idx(ends.to)], id);
    deal_out(now, ends, ends_at);
  }

 private:
  struct Message {
    Ends ends;
    double left = 0;  // bytes, at `since`
    double bytes_per_s = 0;
    double since = 0;
    double busy_until = 0;
  };

 public:
  static constexpr double kMessageBytes = sizeof(Message);

 private:
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }

  template <typename EndsAt>
  void deal_out(double now, Ends ends, EndsAt ends_at) {
    for (const int id : out_[idx(ends.from)]) deal(now, id, ends_at);
    for (const int id : in_[idx(ends.to)])
      if (messages_[idx(id)].ends.from != ends.from) deal(now, id, ends_at);
  }
  template <typename EndsAt>
  void deal(double now, int id, EndsAt ends_at) {
    Message& m = messages_[idx(id)];
    const std::size_t sharing = std::max(out_[idx(m.ends.from)].size(), in_[idx(m.ends.to)].size());
    const double rate = bytes_per_s_ * std::min(1.0, links_ / static_cast<double>(sharing));
    if (rate == m.bytes_per_s) return;
    m.left = std::max(0.0, m.left - m.bytes_per_s * (now - m.since - lost_s(m, now)));
    m.since = now;
    m.bytes_per_s = rate;
    const double busy_s = std::max(0.0, m.busy_until - now);
    ends_at(id, now + beside_computing_s(m.left / rate, busy_share_, busy_s));
  }
  // What computing takes from the time until now.
  double lost_s(const Message& m, double now) const {
    return (1 - busy_share_) * std::max(0.0, std::min(now, m.busy_until) - m.since);
  }

  double bytes_per_s_, links_, busy_share_;
  std::vector<std::vector<int>> out_, in_;  // messages under way, by node
  std::vector<Message> messages_;           // by id
};

}  // namespace kvring
