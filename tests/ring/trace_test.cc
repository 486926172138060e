// What a ring's operations say, against what its report says.
#include <gmock/gmock.h>

#include <map>

#include "tests/ring/odd_transports.h"
#include "tests/ring/ring_support.h"
#include "trace/gather.h"
#include "trace/summary.h"
#include "trace/write.h"

namespace kvring::test {
namespace {

using What = Operation::What;

struct Traced {
  Trace trace;
  std::vector<RankReport> reports;
};

// One attend() of each rank, all operations kept.
Traced trace_ring(Transports ends, const Problem& p, const RingOptions& options) {
  Rng rng(451);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({LayoutKind::kContiguous}, p, static_cast<int>(ends.size()));
  Traced traced;
  traced.reports.resize(ends.size());
  expect_no_failure(on_ranks(std::move(ends), [&](Transport& end) {
    Ring ring(p, layouts, options, end);
    ring.keep_all_operations();
    LocalTensors local(p, layouts, in, end.rank());
    const auto barriers = time_barriers(end);
    local.attend(ring);
    const RankReport& report = ring.report();
    traced.reports[static_cast<std::size_t>(end.rank())] = report;
    auto ranks = gather_traces(
        end, {barriers, {report.tiles_full, report.tiles_partial, report.tiles_skipped}, ring.operations()});
    if (end.rank() == 0) traced.trace.ranks = std::move(ranks);
  }));
  return traced;
}

Transports ends_of(bool copying, int ranks) {
  return copying ? odd_transports<Rendezvous>(ranks) : make_inproc_transports(ranks, kDeadline);
}

TEST(RingTrace, SumsAreThoseOfTheReport) {
  Problem p = plain_problem(96, 8);
  p.causal = true;
  for (const bool copying : {false, true}) {
    const Traced traced = trace_ring(ends_of(copying, 4), p, one_thread(1));
    const TraceSummary summary = summarize(traced.trace);
    for (std::size_t r = 0; r < 4; ++r) {
      const RankReport& report = traced.reports[r];
      const RankSummary& rank = summary.ranks[r];
      constexpr double kRounding = 1e-6;  // of the sum, in another order
      EXPECT_NEAR(rank.busy_s, report.compute_s, kRounding * report.compute_s);
      EXPECT_NEAR(rank.exposed_late_s, report.exposed_late_s, kRounding * report.exposed_late_s);
      EXPECT_NEAR(rank.exposed_transfer_s, report.exposed_transfer_s, kRounding * report.exposed_transfer_s);
      EXPECT_NEAR(rank.exposed_send_s, report.exposed_send_s, kRounding * report.exposed_send_s);
      Operation::Tiles attended;
      double transfer_s = 0;
      std::int64_t bytes = 0, sends = 0;
      for (const Operation& o : traced.trace.ranks[r].operations) {
        attended.full += o.tiles.full;
        attended.partial += o.tiles.partial;
        if (o.what == What::kReceive) transfer_s += std::chrono::duration<double>(*o.done - *o.began).count();
        if (o.what != What::kSend) continue;
        bytes += o.bytes;
        ++sends;
      }
      EXPECT_EQ(attended.full, report.tiles_full);
      EXPECT_EQ(attended.partial, report.tiles_partial);
      EXPECT_NEAR(transfer_s, report.transfer_s, kRounding * report.transfer_s);
      EXPECT_EQ(bytes, report.bytes_sent);
      EXPECT_EQ(sends, report.hops);
    }
  }
}

// One thread computes and waits, so nothing of that overlaps; and every message is seen by both ends.
TEST(RingTrace, OneThingAtATimeAndBothEndsOfEveryMessage) {
  const Problem p = plain_problem(96, 8);
  for (const bool copying : {false, true}) {
    const Traced traced = trace_ring(ends_of(copying, 3), p, one_thread(1));
    std::int64_t hops = 0;
    for (std::size_t r = 0; r < 3; ++r) {
      hops += traced.reports[r].hops;
      std::int64_t now = 0;
      for (const Operation& o : traced.trace.ranks[r].operations) {
        const Span span = span_of(o);
        EXPECT_LE(0, span.begin);
        EXPECT_LE(span.begin, span.end);
        if (track_of(o.what) == Track::kSend || track_of(o.what) == Track::kReceive) continue;
        EXPECT_LE(now, span.begin) << operation_name(o.what);
        now = span.end;
      }
    }
    std::string text;
    write_trace(traced.trace, [&](std::string_view part) { text += part; });
    std::map<std::string, std::int64_t> count;
    const auto json = nlohmann::json::parse(text);
    for (const auto& event : json["traceEvents"]) ++count[event["ph"]];
    EXPECT_GT(hops, 0);
    EXPECT_EQ(count["s"], hops);
    EXPECT_EQ(count["f"], hops);
  }
}

// The flight recorder forgets, a trace does not; and what it keeps from before stays.
TEST(RingTrace, KeepsAllOperationsWhenAsked) {
  const Problem p = plain_problem(96, 8);
  Rng rng(452);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 2);
  expect_no_failure(on_ranks(2, [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    const std::size_t once = ring.operations().size();
    ring.keep_all_operations();
    EXPECT_EQ(ring.operations().size(), once);
    constexpr std::uint32_t kCalls = 120;
    for (std::uint32_t call = 1; call < kCalls; ++call) local.attend(ring);
    const std::vector<Operation> all = ring.operations();
    EXPECT_GT(all.size(), 1024u);
    EXPECT_EQ(all.front().call, 0u);
    std::map<What, std::uint32_t> count;
    for (const Operation& o : all) ++count[o.what];
    EXPECT_EQ(count[What::kPack], kCalls * 2);  // laps
    EXPECT_EQ(count[What::kAttend], kCalls * 2 * 2);
    EXPECT_EQ(count[What::kReceive], kCalls * 2);
  }));
}

TEST(RingTrace, WithoutItTheLastOperationsAreKept) {
  const Problem p = plain_problem(96, 8);
  Rng rng(453);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 2);
  expect_no_failure(on_ranks(2, [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    for (int call = 0; call < 120; ++call) local.attend(ring);
    EXPECT_EQ(ring.operations().size(), 1024u);
    EXPECT_EQ(ring.operations().back().call, 119u);
  }));
}

}  // namespace
}  // namespace kvring::test
