#include "cli/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/machine.h"
#include "cli/bench/random_tensor.h"
#include "cli/bench/sample.h"
#include "cli/machine_profile.h"
#include "cli/measured_calls.h"
#include "kvring/ring.h"
#include "peak/peak.h"
#include "tensor/buffer.h"

namespace kvring::cli {
namespace {

// A shared machine is another one a moment later: every measurement is made in each round.
constexpr int kRounds = 8;
constexpr std::int64_t kReadBytes = std::int64_t{256} << 20;

// All ranks send to the next, and wait for what the rank before sends.
class Shift {
 public:
  Shift(std::int64_t bytes, Transport& team) : team_(team), outgoing_(bytes), incoming_(bytes) {
    std::fill_n(outgoing_.data(), bytes, std::byte{1});
  }
  void post() {
    posted_ = Transport::Clock::now();
    const int ranks = team_.size(), rank = team_.rank();
    const auto bytes = static_cast<std::size_t>(outgoing_.bytes());
    const std::span<std::byte> room(incoming_.data(), team_.passes_pointers() ? 0 : bytes);
    receive_ = team_.post_receive((rank + ranks - 1) % ranks, room);
    send_ = team_.post_send((rank + 1) % ranks, {}, {outgoing_.data(), bytes});
  }
  // Returns the seconds until all had arrived.
  double wait() {
    const auto arrived = team_.wait_receive(receive_, "a measurement").arrived;
    team_.release(receive_);
    team_.wait_send(send_, "a measurement");
    return std::chrono::duration<double>(arrived - posted_).count();
  }

 private:
  Transport& team_;
  AlignedBuffer outgoing_, incoming_;
  Transport::Request receive_ = 0, send_ = 0;
  Transport::Clock::time_point posted_;
};

// A member of the ring of a call.
class Member {
 public:
  Member(const Call& call, int threads, Transport& transport)
      : ring_(call.problem(), call.layouts(), options(threads), transport),
        q_(tensor(call, call.layouts().q, transport, 1)),
        k_(tensor(call, call.layouts().kv, transport, 2)),
        v_(tensor(call, call.layouts().kv, transport, 3)),
        out_(q_.view().elements() * static_cast<std::int64_t>(dtype_bytes(call.dtype))) {}
  void attend() {
    ring_.attend(as_const(q_.view()), as_const(k_.view()), as_const(v_.view()),
                 dense_view<void>(out_.data(), q_.view().dtype, q_.view().shape));
  }

 private:
  static RingOptions options(int threads) {
    RingOptions options;
    options.threads = threads;
    return options;
  }
  static RandomTensor tensor(const Call& call, const Layout& layout, const Transport& transport,
                             std::uint32_t seed) {
    const Shard& shard = layout.shards[static_cast<std::size_t>(transport.rank())];
    return {call.dtype, {1, shard.tokens(), call.heads, Call::kDim}, seed};
  }

  Ring ring_;
  RandomTensor q_, k_, v_;
  AlignedBuffer out_;
};

// Both members of the ring of a call.
class Members {
 public:
  Members(const Call& call, int threads) : transports_(make_inproc_transports(2, kDeadline)) {
    auto other = std::async(std::launch::async,
                            [&] { return std::make_unique<Member>(call, threads, *transports_[1]); });
    first_ = std::make_unique<Member>(call, threads, *transports_[0]);
    other_ = other.get();
  }

  double attend_s(Transport& team) {
    return attend(team, [] {});
  }
  struct Busy {
    double attend_s, shift_s;
  };
  // While `bytes` come from the rank before and go to the next.
  Busy attend_beside(std::int64_t bytes, Transport& team) {
    Shift shift(bytes, team);
    const double seconds = attend(team, [&] { shift.post(); });
    return {seconds, shift.wait()};
  }

 private:
  static constexpr double kDeadline = 60;

  template <typename Before>
  double attend(Transport& team, Before before) {
    std::future<void> other;  // waits for its end, after `begin` is gone
    std::promise<void> begin;
    other = std::async(std::launch::async, [&, begins = begin.get_future()]() mutable {
      begins.get();
      other_->attend();
    });
    team.barrier("the start of a measurement");
    before();
    begin.set_value();
    const double seconds = time_work([&] { first_->attend(); }, 1).wall_s;
    other.get();
    return seconds;
  }

  std::vector<std::unique_ptr<Transport>> transports_;
  std::unique_ptr<Member> first_, other_;
};

// Until all has arrived. What this rank sends may go over a slower link; but of few bytes both must be over,
// or a rank that began late would find that they took no time.
double shift_s(double bytes, Transport& team) {
  Shift shift(static_cast<std::int64_t>(bytes), team);
  team.barrier("the start of a measurement");
  double arrived_s = 0;
  const double both_s = time_work([&] { shift.post(), arrived_s = shift.wait(); }, 1).wall_s;
  return bytes > kSmallBytes ? arrived_s : both_s;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// All ranks measure the same thing at the same time.
class Measurement {
 public:
  Measurement(int threads, Transport& team)
      : threads_(threads),
        team_(team),
        short_(short_call(threads), threads),
        keys_(keys_call(threads), threads),
        measured_(
            {host_name(), static_cast<double>(::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE)), 0, {}}) {}

  Measured run() {
    const ReadBandwidth reads(kReadBytes);
    for (const DType dtype : kMeasuredDTypes) long_.emplace_back(long_call(dtype, threads_), threads_);
    // The first call of each takes new memory.
    for (Members& members : long_) members.attend_s(team_);
    short_.attend_s(team_);
    keys_.attend_s(team_);
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < long_.size(); ++i)
        keep(std::string(dtype_name(kMeasuredDTypes[i])), long_[i].attend_s(team_));
      keep("short", short_.attend_s(team_));
      keep("keys", keys_.attend_s(team_));
      team_.barrier("the start of a measurement");
      keep("read", 1e-9 / reads.gbytes_per_s(threads_));
      if (team_.size() > 1) shifts();
    }
    return measured_;
  }

 private:
  void keep(const std::string& name, double seconds) { measured_.seconds[name].push_back(seconds); }

  void shifts() {
    keep("small", shift_s(kSmallBytes, team_));
    keep("large", shift_s(kLargeBytes, team_));
    if (team_.passes_pointers()) return;  // nothing that would take from computing
    if (measured_.meanwhile_bytes == 0) measured_.meanwhile_bytes = bytes_during_call();
    const auto busy =
        long_.front().attend_beside(static_cast<std::int64_t>(measured_.meanwhile_bytes), team_);
    keep("busy", busy.attend_s);
    keep("beside", busy.shift_s);
  }

  // What passes in half of the long call, so that all of it is beside computing; by every rank's first round,
  // all ranks have the same answer.
  double bytes_during_call() {
    constexpr double kLeast = 1 << 16, kMost = 64 << 20;
    double bytes = kMost;
    const Json mine = {measured_.seconds["f32"].front(), measured_.seconds["large"].front()};
    for (const std::string& text : team_.allgather(mine.dump(), "the measurements")) {
      const Json seconds = Json::parse(text);
      bytes = std::min(bytes, 0.5 * seconds[0].get<double>() / seconds[1].get<double>() * kLargeBytes);
    }
    return std::max(kLeast, bytes);
  }

  int threads_;
  Transport& team_;
  std::deque<Members> long_;  // by dtype, f32 first
  Members short_, keys_;
  Measured measured_;
};

}  // namespace

std::optional<Json> calibrate(Team& team) {
  std::optional<Json> machine;
  const int threads = team.cores_per_rank();
  team.run({[] {},
            [&](Transport& transport) {
              const nlohmann::json mine = Measurement(threads, transport).run();
              const std::vector<std::string> all = transport.allgather(mine.dump(), "the measurements");
              if (transport.rank() != 0) return;
              std::vector<Measured> ranks;
              for (const std::string& text : all)
                ranks.push_back(nlohmann::json::parse(text).get<Measured>());
              machine =
                  machine_profile(ranks, threads,
                                  fmt::format("kvring plan --calibrate, {} ranks over {} on {}", ranks.size(),
                                              team.transport(), machine_text(machine_json())));
            },
            {},
            [](Transport&) {}});
  return machine;
}

}  // namespace kvring::cli
