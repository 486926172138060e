// Ends of an in-process ring that behave differently from it: late, or as a network without buffers does.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "tests/ring/ring_support.h"

namespace kvring::test {

class Forwarding : public Transport {
 public:
  explicit Forwarding(std::unique_ptr<Transport> end) : end_(std::move(end)) {}

  int rank() const noexcept override { return end_->rank(); }
  int size() const noexcept override { return end_->size(); }
  const char* name() const noexcept override { return end_->name(); }
  bool passes_pointers() const noexcept override { return end_->passes_pointers(); }
  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override {
    return end_->post_send(to, header, payload);
  }
  Request post_forward(Request receive, int to) override { return end_->post_forward(receive, to); }
  Request post_receive(int from, std::span<std::byte> buffer) override {
    return end_->post_receive(from, buffer);
  }
  Received wait_receive(Request receive, const WaitLabel& what) override {
    return end_->wait_receive(receive, what);
  }
  void release(Request receive) override { end_->release(receive); }
  void wait_send(Request send, const WaitLabel& what) override { end_->wait_send(send, what); }
  std::optional<Clock::time_point> completed(Request request) const override {
    return end_->completed(request);
  }
  void progress() override { end_->progress(); }
  std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) override {
    return end_->allgather(mine, what);
  }
  void barrier(const WaitLabel& what) override { end_->barrier(what); }
  void fail(const std::string& reason) noexcept override { end_->fail(reason); }
  Verdict verdict() const override { return end_->verdict(); }

 protected:
  std::unique_ptr<Transport> end_;
};

// Sleeps and yields at random, so that blocks arrive and are let go in ever new orders of time.
class Late final : public Forwarding {
 public:
  Late(std::unique_ptr<Transport> end, std::uint64_t seed) : Forwarding(std::move(end)), rng_(seed) {}

  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override {
    dawdle();
    return end_->post_send(to, header, payload);
  }
  Received wait_receive(Request receive, const WaitLabel& what) override {
    dawdle();
    return end_->wait_receive(receive, what);
  }
  void release(Request receive) override {
    dawdle();
    end_->release(receive);
  }

 private:
  void dawdle() {
    if (rng_.chance(0.3)) std::this_thread::yield();
    if (rng_.chance(0.5)) std::this_thread::sleep_for(std::chrono::microseconds(rng_.between(1, 400)));
  }
  Rng rng_;
};

// A transport that copies and has no buffers of its own: a send is over only once the receiver waits for it,
// and a block goes on only then.
class Rendezvous final : public Forwarding {
 public:
  using Forwarding::Forwarding;

  bool passes_pointers() const noexcept override { return false; }
  Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) override {
    sends_[next_] = end_->post_send(to, header, payload);
    return next_++;
  }
  Request post_forward(Request receive, int to) override {
    forwards_[receive] = {to, next_};
    return next_++;
  }
  Request post_receive(int from, std::span<std::byte> buffer) override {
    receives_[next_] = {end_->post_receive(from, {}), buffer};
    return next_++;
  }
  Received wait_receive(Request receive, const WaitLabel& what) override {
    const auto& [real, buffer] = receives_.at(receive);
    Received got = end_->wait_receive(real, what);
    if (got.payload.size() > buffer.size()) throw Internal("a payload that is longer than its buffer");
    std::copy(got.payload.begin(), got.payload.end(), buffer.begin());
    end_->release(real);
    got.payload = buffer.first(got.payload.size());
    if (const auto forward = forwards_.find(receive); forward != forwards_.end()) {
      MessageHeader header = got.header;
      header.step += 1;
      sends_[forward->second.second] = end_->post_send(forward->second.first, header, got.payload);
    }
    return got;
  }
  void release(Request receive) override { receives_.erase(receive); }
  void wait_send(Request send, const WaitLabel& what) override {
    if (sends_.contains(send)) end_->wait_send(sends_.at(send), what);
  }
  std::optional<Clock::time_point> completed(Request request) const override {
    const auto send = sends_.find(request);
    return send == sends_.end() ? std::nullopt : end_->completed(send->second);
  }

 private:
  Request next_ = 0;
  std::map<Request, Request> sends_;
  std::map<Request, std::pair<int, Request>> forwards_;  // by receive: to whom, and the send it becomes
  std::map<Request, std::pair<Request, std::span<std::byte>>> receives_;
};

template <typename Odd, typename... Args>
Transports odd_transports(int ranks, Args... args) {
  Transports ends = make_inproc_transports(ranks, kDeadline);
  for (std::unique_ptr<Transport>& end : ends) end = std::make_unique<Odd>(std::move(end), args...);
  return ends;
}

}  // namespace kvring::test
