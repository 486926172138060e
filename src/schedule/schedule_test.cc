// What every schedule promises, whatever it moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <limits>
#include <map>
#include <set>

#include "kvring/error.h"
#include "schedule/parcel.h"
#include "schedule/test_support.h"

namespace kvring {
namespace {

using test::AllSteps;
using test::Case;

// What a parcel is, as far as steps can tell: of partials and rows, the blocks that the queries have met.
using Met = std::multiset<std::int32_t>;

// All ranks on links without buffers: a transfer completes only when both sides have posted it, and a rank
// leaves a step only when all of its transfers are complete. Every check is that a rank has what it uses.
class Play {
 public:
  Play(const Case& c, const AllSteps& all) : c_(c), all_(all), ranks_(all.size()) {}

  // Whether all came to their end.
  bool run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) begin(r);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].at == all_[r].size() || !complete(r)) continue;
        end(r);
        moved = true;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].at != all_[r].size()) return false;
      for (const auto& [peer, queue] : ranks_[r].sent)
        if (!queue.empty()) return false;
    }
    return true;
  }
  // Of the rows of that rank's queries: what they met, by share of the heads.
  std::vector<Met> rows(int rank) const { return ranks_[static_cast<std::size_t>(rank)].rows; }

 private:
  struct Message {
    Parcel parcel;
    Met met;
  };
  struct Rank {
    std::size_t at = 0;
    std::map<int, std::deque<Message>> sent;        // by peer: posted, and not yet received
    std::set<std::pair<int, int>> blocks, queries;  // owner and share
    std::map<std::int32_t, Met> partials;           // by owner of the queries
    std::map<std::int32_t, Met> finished;           // of other ranks' queries
    std::vector<Met> rows;
  };

  const Step& step(std::size_t r) const { return all_[r][ranks_[r].at]; }
  static bool holds(const std::set<std::pair<int, int>>& set, int owner, int rank, int share) {
    return owner == rank || set.contains({owner, share}) || set.contains({owner, kWholeLap});
  }

  // Posts the sends, and attends.
  void begin(std::size_t r) {
    Rank& rank = ranks_[r];
    if (rank.at == all_[r].size()) return;
    const auto self = static_cast<int>(r);
    RC_ASSERT(step(r).step == static_cast<int>(rank.at));
    for (const Transfer& send : step(r).sends) {
      const auto& [cargo, owner, share] = send.parcel;
      RC_ASSERT(send.peer != self);
      RC_ASSERT(share == kWholeLap || share == (cargo == Cargo::kRows ? self : send.peer));
      Message message{send.parcel, {}};
      if (cargo == Cargo::kBlock) RC_ASSERT(holds(rank.blocks, owner, self, share));
      if (cargo == Cargo::kQueries) RC_ASSERT(holds(rank.queries, owner, self, share));
      if (cargo == Cargo::kPartials) {
        RC_ASSERT(owner != self);
        message.met = rank.partials.at(owner);
        rank.partials.erase(owner);
      }
      if (cargo == Cargo::kRows) {
        RC_ASSERT(owner == send.peer);
        message.met = rank.finished.at(owner);
        rank.finished.erase(owner);
      }
      rank.sent[send.peer].push_back(message);
    }
    std::set<std::int32_t> groups;  // owners of queries whose meeting is over
    std::int32_t group = -1;
    for (const Attend& attend : step(r).attends) {
      if (attend.queries != group) RC_ASSERT(groups.insert(attend.queries).second);
      group = attend.queries;
      RC_ASSERT(holds(rank.blocks, attend.block, self, self));
      RC_ASSERT(holds(rank.queries, attend.queries, self, self));
      rank.partials[attend.queries].insert(attend.block);
    }
  }

  // Both sides of every transfer of the step have been posted.
  bool complete(std::size_t r) {
    const auto self = static_cast<int>(r);
    std::map<int, std::size_t> due;
    for (const Transfer& receive : step(r).receives) {
      auto& queue = ranks_[static_cast<std::size_t>(receive.peer)].sent[self];
      if (queue.size() <= due[receive.peer]) return false;
      RC_ASSERT(queue[due[receive.peer]++].parcel == receive.parcel);
    }
    for (const Transfer& send : step(r).sends) {
      const Rank& peer = ranks_[static_cast<std::size_t>(send.peer)];
      if (peer.at < ranks_[r].at) return false;  // it posts the receive in the same step
    }
    return true;
  }

  void end(std::size_t r) {
    Rank& rank = ranks_[r];
    const auto self = static_cast<int>(r);
    for (const Transfer& receive : step(r).receives) {
      auto& queue = ranks_[static_cast<std::size_t>(receive.peer)].sent[self];
      const auto& [cargo, owner, share] = receive.parcel;
      Met& met = queue.front().met;
      if (cargo == Cargo::kBlock) rank.blocks.insert({owner, share});
      if (cargo == Cargo::kQueries) rank.queries.insert({owner, share});
      if (cargo == Cargo::kPartials) rank.partials[owner].merge(met);
      if (cargo == Cargo::kRows) rank.rows.push_back(met);
      queue.pop_front();
    }
    for (const std::int32_t owner : step(r).finishes) {
      Met& met = rank.partials[owner];
      if (owner == self)
        rank.rows.push_back(met);
      else
        rank.finished[owner] = met;
      rank.partials.erase(owner);
    }
    ++rank.at;
    begin(r);
  }

  const Case& c_;
  const AllSteps& all_;
  std::vector<Rank> ranks_;
};

Case random_case_for(ScheduleKind kind, test::Rng& rng) {
  Case c = test::random_case(rng);
  if (kind == ScheduleKind::kUlysses) {
    const std::int64_t group = c.problem.q_heads / c.problem.kv_heads;
    c.problem.kv_heads = c.ranks * rng.between(1, 2);
    c.problem.q_heads = c.problem.kv_heads * group;
  }
  return c;
}

class EverySchedule : public testing::TestWithParam<ScheduleKind> {};
INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule, testing::ValuesIn(kSchedules), [](const auto& schedule) {
  std::string name = schedule_name(schedule.param);
  std::erase(name, '-');
  return name;
});

TEST_P(EverySchedule, QueriesMeetExactlyTheBlocksTheySeeAndNobodyWaitsForever) {
  EXPECT_TRUE(rc::check([kind = GetParam()] {
    test::Rng rng(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>()));
    const Case c = random_case_for(kind, rng);
    RC_LOG() << test::describe(c.problem) << "ranks=" << c.ranks;
    const AllSteps all = test::all_steps(kind, c.problem, c.layouts);
    Play play(c, all);
    RC_ASSERT(play.run());
    for (int rank = 0; rank < c.ranks; ++rank) {
      Met needed;
      for (int owner = 0; owner < c.ranks; ++owner)
        if (test::needs(c, rank, owner)) needed.insert(owner);
      const std::vector<Met> rows = play.rows(rank);
      const bool any = c.layouts.q.shards[static_cast<std::size_t>(rank)].tokens() > 0;
      // Of ulysses, one share of the rows from each rank.
      const std::size_t shares =
          kind == ScheduleKind::kUlysses && any ? static_cast<std::size_t>(c.ranks) : 1;
      if (any) RC_ASSERT(rows.size() == shares);
      for (const Met& met : rows) RC_ASSERT(met == needed);
    }
  }));
}

TEST_P(EverySchedule, RefusesLayoutsThatDoNotFit) {
  Problem p;
  p.q_len = p.kv_len = 8;
  p.q_heads = p.kv_heads = 6;
  p.head_dim = p.value_dim = 1;
  p.tile = 1;
  const Layouts layouts = make_layouts({}, p, 2);
  EXPECT_THROW(schedule_steps(GetParam(), p, layouts, 2), InvalidArgument);
  EXPECT_THROW(schedule_steps(GetParam(), p, layouts, -1), InvalidArgument);
  EXPECT_THROW(schedule_steps(GetParam(), p, {layouts.q, make_layouts({}, p, 3).kv}, 0), InvalidArgument);
  EXPECT_THROW(schedule_steps(GetParam(), p, {}, 0), InvalidArgument);
  p.q_len = 9;
  EXPECT_THROW(schedule_steps(GetParam(), p, layouts, 0), InvalidArgument);
}

struct Sent {
  std::int64_t blocks = 0, queries = 0, partials = 0, rows = 0;
  friend bool operator==(const Sent&, const Sent&) = default;
};
Sent sent(const AllSteps& all) {
  Sent sum;
  for (const auto& steps : all) {
    for (const Step& step : steps) {
      for (const Transfer& send : step.sends) {
        std::int64_t* const counts[] = {&sum.blocks, &sum.queries, &sum.partials, &sum.rows};
        ++*counts[static_cast<std::size_t>(send.parcel.cargo)];
      }
    }
  }
  return sum;
}

TEST(Schedules, MoveWhatTheirNamesSay) {
  Problem p;
  p.q_len = p.kv_len = 64;
  p.q_heads = p.kv_heads = 8;
  p.head_dim = p.value_dim = 4;
  p.tile = 1;
  const Layouts layouts = make_layouts({}, p, 8);
  const auto moved = [&](ScheduleKind kind) { return sent(test::all_steps(kind, p, layouts)); };
  EXPECT_EQ(moved(ScheduleKind::kRing), (Sent{.blocks = 56}));
  EXPECT_EQ(moved(ScheduleKind::kAllGather), (Sent{.blocks = 56}));
  EXPECT_EQ(moved(ScheduleKind::kPassQ), (Sent{.queries = 56, .partials = 56}));
  EXPECT_EQ(moved(ScheduleKind::kUlysses), (Sent{.blocks = 56, .queries = 56, .rows = 56}));
  EXPECT_EQ(moved(ScheduleKind::kTree), (Sent{.queries = 56, .partials = 56}));
}

TEST(Schedules, ATreeOfOneQueryIsAsDeepAsTheLogarithm) {
  Problem p;
  p.q_len = 1;
  p.kv_len = 64;
  p.head_dim = p.value_dim = 4;
  p.tile = 1;
  p.causal = true;
  for (const auto& [ranks, depth] : {std::pair(2, 1), {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}, {64, 6}}) {
    const AllSteps all = test::all_steps(ScheduleKind::kTree, p, make_layouts({}, p, ranks));
    EXPECT_EQ(sent(all), (Sent{.queries = ranks - 1, .partials = ranks - 1})) << ranks;
    for (const auto& steps : all) EXPECT_EQ(std::ssize(steps), 2 * depth + 1) << ranks;
  }
}

TEST(Schedules, UlyssesRefusesHeadsThatDoNotDivideAndSaysWhatWould) {
  Problem p;
  p.batch = 2;
  p.q_len = p.kv_len = 8;
  p.q_heads = 6;
  p.kv_heads = 3;
  p.head_dim = p.value_dim = 1;
  p.tile = 1;
  try {
    schedule_steps(ScheduleKind::kUlysses, p, make_layouts({}, p, 4), 0);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("6 of them (batch 2 x kv_heads 3) do not divide over 4 ranks; "
                                   "use 3 ranks, or schedule ring"));
  }
  EXPECT_NO_THROW(schedule_steps(ScheduleKind::kUlysses, p, make_layouts({}, p, 6), 0));
  EXPECT_NO_THROW(schedule_steps(ScheduleKind::kUlysses, p, make_layouts({}, p, 1), 0));
}

TEST(Laps, CoverAllUnitsOnce) {
  Problem p;
  p.batch = 3;
  p.q_heads = p.kv_heads = 5;
  for (std::int64_t width : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{15},
                             std::numeric_limits<std::int64_t>::max()}) {
    std::int64_t next = 0;
    for (const Lap& lap : make_laps(p, width)) {
      EXPECT_EQ(lap.kv_begin, next);
      EXPECT_GT(lap.kv_end, lap.kv_begin);
      EXPECT_TRUE(lap.units() == width || lap.kv_end == 15);
      next = lap.kv_end;
    }
    EXPECT_EQ(next, 15);
  }
  EXPECT_THROW(make_laps(p, 0), InvalidArgument);
  EXPECT_THROW(make_laps(p, -1), InvalidArgument);
}

TEST(Laps, SharesCoverALapOnce) {
  const Lap lap{6, 18};
  std::int64_t next = 6;
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const Lap share = share_of(lap, rank, 4);
    EXPECT_EQ(share.kv_begin, next);
    EXPECT_EQ(share.units(), 3);
    next = share.kv_end;
  }
  EXPECT_EQ(next, 18);
  EXPECT_EQ(share_of(lap, kWholeLap, 4).units(), 12);
}

}  // namespace
}  // namespace kvring
