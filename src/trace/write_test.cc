#include "trace/write.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "trace/test_support.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

TEST(WriteTrace, EventsOfATrackDoNotOverlapAndLastNoNegativeTime) {
  Trace trace = sample_trace(4);
  // Two sends at once, and one within another.
  Operation send = trace.ranks[1].operations[1];
  ASSERT_EQ(send.what, Operation::What::kSend);
  send.block = 3;
  trace.ranks[1].operations.push_back(send);
  *send.done += std::chrono::microseconds(5);
  trace.ranks[1].operations.push_back(send);
  std::map<std::pair<int, int>, double> ends;
  for (const Json& event : events_of(Json::parse(written(trace)), "X")) {
    const double begin = event["ts"], duration = event["dur"];
    EXPECT_GE(begin, 0);
    EXPECT_GE(duration, 0);
    double& end = ends[{event["pid"], event["tid"]}];
    EXPECT_GE(begin, end - 1e-6) << event;
    end = begin + duration;
  }
  EXPECT_GT(ends.size(), 4u * 4u);
}

TEST(WriteTrace, EveryArrowHasBothEndsInsideTheirSlices) {
  const Json trace = Json::parse(written(sample_trace(3)));
  std::map<int, Json> starts, ends;
  for (const Json& event : events_of(trace, "s")) starts[event["id"].get<int>()] = event;
  for (const Json& event : events_of(trace, "f")) ends[event["id"].get<int>()] = event;
  EXPECT_EQ(starts.size(), 3u * 2u * 2u);  // ranks, hops, laps
  ASSERT_EQ(starts.size(), ends.size());
  const auto slice = [&](const Json& arrow) {
    for (const Json& event : events_of(trace, "X"))
      if (event["pid"] == arrow["pid"] && event["tid"] == arrow["tid"] && event["ts"] <= arrow["ts"] &&
          event["ts"].get<double>() + event["dur"].get<double>() > arrow["ts"].get<double>())
        return event;
    return Json();
  };
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.contains(id));
    const Json from = slice(start), to = slice(ends[id]);
    ASSERT_TRUE(from.is_object() && to.is_object());
    EXPECT_EQ(from["args"]["peer"], to["pid"]);
    EXPECT_EQ(to["args"]["peer"], from["pid"]);
    EXPECT_EQ(from["args"]["block"], to["args"]["block"]);
    EXPECT_EQ(from["cat"], "send");
    EXPECT_EQ(to["cat"], "receive");
    EXPECT_LE(start["ts"], ends[id]["ts"]);
  }
}

// A ring whose end of a message was not seen, because it failed.
TEST(WriteTrace, AMessageWithOneEndHasNoArrow) {
  Trace trace = sample_trace(2, 1);
  std::erase_if(trace.ranks[0].operations,
                [](const Operation& o) { return o.what == Operation::What::kReceive; });
  const Json json = Json::parse(written(trace));
  EXPECT_EQ(events_of(json, "s").size(), 1u);
  EXPECT_EQ(events_of(json, "f").size(), 1u);
}

TEST(WriteTrace, BytesInFlightBeginAndEndAtZero) {
  const std::vector<Json> counts = events_of(Json::parse(written(sample_trace(4))), "C");
  ASSERT_FALSE(counts.empty());
  std::int64_t most = 0;
  for (const Json& count : counts) {
    EXPECT_EQ(count["pid"], 4);
    EXPECT_GE(count["args"]["bytes"], 0);
    most = std::max(most, count["args"]["bytes"].get<std::int64_t>());
  }
  EXPECT_EQ(most, 4 * 4096);
  EXPECT_EQ(counts.back()["args"]["bytes"], 0);
}

TEST(WriteTrace, NamesRanksTracksAndWhatWasRun) {
  const Json json = Json::parse(written(sample_trace(3)));
  std::set<std::string> names;
  for (const Json& event : events_of(json, "M"))
    if (event["name"] == "process_name" || event["name"] == "thread_name")
      names.insert(event["args"]["name"]);
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"rank 0 on node0", "rank 2 on node1", "compute", "wait", "receive", "send"}));
  const Json& about = json["otherData"];
  EXPECT_EQ(about["schema_version"], 1);
  EXPECT_EQ(about["ranks"], 3);
  EXPECT_EQ(about["layout"], "contiguous");
  EXPECT_EQ(about["problem"]["q_len"], 64);
  EXPECT_EQ(about["per_rank"][1]["tiles_skipped"], 8);
  EXPECT_NEAR(about["wall_s"].get<double>(), 2 * (100 + 3 * 1000 + 2 * 250 + 75) * 1e-9 + 25e-9, 1e-12);
}

}  // namespace
}  // namespace kvring
