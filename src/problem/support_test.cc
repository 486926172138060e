#include "problem/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvring/error.h"

namespace kvring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::vector<SupportRow>& table, const SupportQuery& query) {
  try {
    require_listed(table, query);
  } catch (const Unsupported& e) {
    return e.what();
  }
  return "";
}

TEST(Support, EveryScheduleHasARowForEveryMask) {
  const auto table = support_table();
  EXPECT_EQ(table.size(), 5u * 4u);
  for (const SupportRow& row : table) {
    EXPECT_FALSE(row.dtypes.empty());
    EXPECT_FALSE(row.instead.empty());
  }
}

TEST(Support, QueryNamesAllThatACallUses) {
  Problem p;
  p.q_len = 8;
  p.kv_len = 9;
  p.q_heads = 2;
  p.head_dim = 4;
  p.value_dim = 3;
  p.causal = true;
  p.window_left = 2;
  p.cu_seqlens_q = {0, 8};
  p.cu_seqlens_kv = {0, 9};
  p.q_dtype = DType::kBF16;
  p.softcap = 1;
  p.has_sinks = true;
  p.accumulation = Accumulation::kOnline;
  Layouts layouts;
  layouts.q.spec.kind = LayoutKind::kCustom;
  layouts.kv.tile_aligned = false;
  const SupportQuery query = support_query(p, layouts, ScheduleKind::kRing);
  EXPECT_EQ(query.schedule, "ring");
  EXPECT_THAT(query.masks, ElementsAre("causal", "window", "documents"));
  EXPECT_THAT(query.dtypes, ElementsAre("bf16", "f32", "f32"));
  EXPECT_EQ(query.features, support_features());
  EXPECT_NO_THROW(require_supported(p, layouts, ScheduleKind::kRing));

  Problem plain;
  plain.q_len = plain.kv_len = 8;
  plain.head_dim = plain.value_dim = 4;
  EXPECT_THAT(support_query(plain, {}, ScheduleKind::kRing).masks, ElementsAre("full"));
  EXPECT_TRUE(support_query(plain, {}, ScheduleKind::kRing).features.empty());
}

TEST(Support, AnUnsupportedFlagIsAcceptedAndDropped) {
  const std::vector<SupportRow> table = {
      {"ring", "full", {"f32", "bf16"}, {"sinks", "gqa"}, "use schedule pass-q"},
      {"ring", "causal", {"f32"}, {"sinks"}, "use a full mask"}};
  EXPECT_EQ(refusal(table, {"ring", {"full"}, {"bf16", "f32"}, {"gqa"}}), "");
  EXPECT_EQ(refusal(table, {"ring", {"full"}, {"f32"}, {"softcap"}}),
            "schedule ring with a full mask does not support softcap; use schedule pass-q");
  EXPECT_EQ(refusal(table, {"ring", {"full", "causal"}, {"f32"}, {"gqa"}}),
            "schedule ring with a causal mask does not support gqa; use a full mask");
  EXPECT_THAT(refusal(table, {"ring", {"causal"}, {"bf16"}, {}}), HasSubstr("dtype bf16"));
  EXPECT_THAT(refusal(table, {"ring", {"window"}, {"f32"}, {}}), HasSubstr("does not support a window mask"));
  EXPECT_THAT(refusal(support_table(), {"tree", {"full"}, {"f64"}, {}}), HasSubstr("dtype f64"));
}

TEST(Support, ScheduleNames) {
  EXPECT_EQ(parse_schedule("pass-q"), ScheduleKind::kPassQ);
  for (const ScheduleKind schedule : kSchedules)
    EXPECT_EQ(parse_schedule(schedule_name(schedule)), schedule) << schedule_name(schedule);
  try {
    parse_schedule("rnig");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("use ring, all-gather, pass-q, ulysses, tree"));
  }
}

}  // namespace
}  // namespace kvring
