// The protocol with a thread of its own and inline, between threads of this process.
#include "transport/wire/wire_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport/conformance.h"
#include "transport/wire/local_wire.h"

namespace kvring::wire {
namespace {

using std::chrono::milliseconds;

constexpr double kPatient = 60.0;  // seconds; for tests that should not time out on a loaded machine

struct Mode {
  int ranks;
  bool thread;
};

class WireRing : public testing::TestWithParam<Mode> {
 protected:
  // Runs `body` on an end of each rank. Returns what it threw, by rank ("" for nothing).
  static std::vector<std::string> run(double deadline_s, const std::function<void(Transport&)>& body) {
    const auto [ranks, thread] = GetParam();
    const auto network = std::make_shared<LocalNetwork>();
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r, ranks = ranks, thread = thread] {
        WireTransport end(std::make_unique<LocalWire>(network, r, ranks),
                          {.deadline_s = deadline_s, .thread = thread});
        try {
          body(end);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(r)] =
              std::string(error_code_name(error.code())) + ": " + error.what();
        }
      });
    threads.clear();
    return errors;
  }

  static void expect_clean(const std::function<void(Transport&)>& body) {
    for (const std::string& error : run(kPatient, body)) EXPECT_EQ(error, "");
  }
};
INSTANTIATE_TEST_SUITE_P(, WireRing,
                         testing::Values(Mode{1, true}, Mode{2, true}, Mode{3, true}, Mode{5, true},
                                         Mode{2, false}, Mode{3, false}),
                         [](const auto& mode) {
                           return (mode.param.thread ? "Thread" : "Inline") +
                                  std::to_string(mode.param.ranks);
                         });

TEST_P(WireRing, BlocksVisitEveryRank) {
  expect_clean([](Transport& end) {
    for (std::uint32_t lap = 0; lap < 10; ++lap) {
      conformance::rotate(end, lap, 5000);
      conformance::rotate_ahead(end, lap, 5000);
    }
    conformance::forward_late(end);
  });
}

TEST_P(WireRing, KeepsOrderAndGathers) {
  expect_clean([](Transport& end) {
    conformance::keeps_order(end);
    conformance::send_then_receive(end, 3 << 20);
    conformance::gathers(end);
  });
}

TEST_P(WireRing, FailureEndsWaitsAndWork) {
  const int last = GetParam().ranks - 1;
  if (last == 0) GTEST_SKIP() << "needs two ranks";
  const auto errors = run(kPatient, [&](Transport& end) {
    if (end.rank() == last) {
      end.fail("out of luck");
      end.barrier("the end");
    } else if (end.rank() == 0) {
      for (;;) {  // computes, and waits for nobody
        std::this_thread::sleep_for(milliseconds(1));
        end.progress();
      }
    } else {
      end.barrier("the end");
    }
  });
  EXPECT_THAT(errors, testing::Each("Transport: rank " + std::to_string(last) + " failed: out of luck"));
}

// All ranks answer, and the last one is at something else.
TEST_P(WireRing, VerdictNamesWhoKeepsTheOthersWaiting) {
  const auto [ranks, thread] = GetParam();
  if (ranks == 1 || !thread) GTEST_SKIP() << "needs two ranks, and a thread that answers for the last one";
  std::atomic<int> over = 0;
  run(0.3, [&, last = ranks - 1](Transport& end) {
    if (end.rank() == last) {
      while (over < last) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    std::vector<std::byte> buffer(10);
    EXPECT_THROW(end.wait_receive(end.post_receive(last, buffer), "a block"), Error);
    EXPECT_EQ(end.verdict().culprit, last) << end.verdict().text;
    EXPECT_EQ(end.verdict().silent_s, 0);
    ++over;
  });
}

// The last one has stopped: nothing at all comes from it any more. Its neighbour computes on, and must hear
// of it all the same.
TEST_P(WireRing, SilenceIsNoticedByThoseThatDoNotWait) {
  const auto [ranks, thread] = GetParam();
  if (ranks == 1 || !thread) GTEST_SKIP() << "needs two ranks, and a thread that listens";
  const auto network = std::make_shared<LocalNetwork>();
  std::vector<std::jthread> threads;
  for (int r = 0; r + 1 < ranks; ++r)
    threads.emplace_back([&, r, ranks = ranks] {
      WireTransport end(std::make_unique<LocalWire>(network, r, ranks), {.deadline_s = 0.5, .thread = true});
      const auto compute = [&] {
        for (;;) {
          std::this_thread::sleep_for(milliseconds(1));
          end.progress();
        }
      };
      const auto start = Clock::now();
      EXPECT_THROW(compute(), Error);
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
      EXPECT_EQ(end.verdict().culprit, ranks - 1);
      EXPECT_GT(end.verdict().silent_s, 0.4);
      EXPECT_THAT(end.verdict().text, testing::HasSubstr("does not answer"));
    });
}

// Notes the lengths of what is sent, above 0, and of the room that is given to what comes, below.
class NotedWire final : public Wire {
 public:
  NotedWire(std::unique_ptr<Wire> wire, std::vector<std::int64_t>& notes)
      : wire_(std::move(wire)), notes_(notes) {}

  int rank() const noexcept override { return wire_->rank(); }
  int size() const noexcept override { return wire_->size(); }
  const char* name() const noexcept override { return wire_->name(); }
  int ranks_on_this_host() const noexcept override { return wire_->ranks_on_this_host(); }
  Operation send(int to, int tag, std::span<const std::byte> bytes, Keep keep) override {
    notes_.push_back(std::ssize(bytes));
    return wire_->send(to, tag, bytes, std::move(keep));
  }
  Operation receive(int from, int tag, std::span<std::byte> buffer, Keep keep) override {
    notes_.push_back(-std::ssize(buffer));
    return wire_->receive(from, tag, buffer, std::move(keep));
  }
  Operation allgather(std::shared_ptr<const Gather> gather) override {
    return wire_->allgather(std::move(gather));
  }
  std::optional<std::size_t> test(Operation& operation) override { return wire_->test(operation); }
  void cancel(const Operation& operation) override { wire_->cancel(operation); }
  std::optional<Arrival> take(int tag) override { return wire_->take(tag); }
  Clock::time_point now() const override { return wire_->now(); }
  void nap(Clock::duration time) override { wire_->nap(time); }
  void close() override { wire_->close(); }

 private:
  std::unique_ptr<Wire> wire_;
  std::vector<std::int64_t>& notes_;
};

// On one connection the word that a block may come would queue up behind the block that it lets come from
// here.
TEST(WireTransport, NothingMayComeFromWhereABlockIsAboutToGo) {
  constexpr std::int64_t kLong = 5 << 20,
                         kShort = 1000;  // a checksum that takes a while, and one that does not
  const auto network = std::make_shared<LocalNetwork>();
  const std::vector<std::byte> of_first(kLong), of_second(kShort);
  std::vector<std::int64_t> notes;
  std::atomic<bool> sent = false;
  const WireOptions options{.deadline_s = kPatient, .thread = false};
  std::jthread second([&] {
    WireTransport end(std::make_unique<LocalWire>(network, 1, 2), options);
    const Transport::Request send = end.post_send(0, {}, of_second);
    while (!end.completed(send)) end.progress();
    sent = true;
    std::vector<std::byte> room(kLong);
    const Transport::Request receive = end.post_receive(0, room);
    end.wait_receive(receive, "a block");
    end.release(receive);
    end.wait_send(send, "a block");
  });
  while (!sent) std::this_thread::sleep_for(milliseconds(1));
  WireTransport end(std::make_unique<NotedWire>(std::make_unique<LocalWire>(network, 0, 2), notes), options);
  std::vector<std::byte> room(kShort);
  const Transport::Request send = end.post_send(1, {}, of_first), receive = end.post_receive(1, room);
  end.wait_receive(receive, "a block");
  const auto goes = std::ranges::find(notes, kLong), comes = std::ranges::find(notes, -kShort);
  ASSERT_NE(goes, notes.end());
  ASSERT_NE(comes, notes.end());
  EXPECT_LT(goes, comes);
  end.release(receive);
  end.wait_send(send, "a block");
}

}  // namespace
}  // namespace kvring::wire
