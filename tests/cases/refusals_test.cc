// What must be refused, in words that name the values and what would work.
#include <gmock/gmock.h>

#include "problem/support.h"
#include "tests/cases/cases.h"

namespace kvring::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Expected>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  return "nothing was refused";
}

// "query heads not a multiple of kv heads unchecked": 3 query heads, 2 kv heads.
TEST(Faults, QueryHeadsNotAMultipleOfKvHeadsUnchecked) {
  Problem p = sequence(4, 2);
  p.q_heads = 3;
  Rng rng(91);
  const Inputs in = random_inputs(rng, p);
  EXPECT_THAT(message_of<InvalidArgument>([&] { run_inproc(p, ring_of(2), in); }),
              AllOf(HasSubstr("q_heads is 3"), HasSubstr("kv_heads is 2"), HasSubstr("such as 2 or 4")));
}

// "an unsupported flag is accepted and dropped": whatever the support table does not list.
TEST(Faults, UnsupportedFlagAcceptedAndDropped) {
  // What the table lacks is refused, and what to do instead is said.
  for (const SupportRow& row : support_table()) {
    for (const std::string& feature : support_features()) {
      std::vector<SupportRow> table = support_table();
      const SupportQuery query{row.schedule, {row.mask}, row.dtypes, {feature}};
      EXPECT_EQ(message_of<Unsupported>([&] { require_listed(table, query); }), "nothing was refused");
      for (SupportRow& other : table) std::erase(other.features, feature);
      EXPECT_THAT(message_of<Unsupported>([&] { require_listed(table, query); }),
                  AllOf(HasSubstr(row.schedule), HasSubstr(feature), HasSubstr("kvring info --support")));
    }
  }
  // One that nobody has heard of is refused as well.
  EXPECT_THAT(message_of<Unsupported>([&] {
                require_listed(support_table(), {"ring", {"causal"}, {"f32"}, {"dropout"}});
              }),
              HasSubstr("dropout"));
}

// "ranks disagree on the number of transfers": one rank was given another sequence length, dtype or mask.
TEST(Faults, RanksDisagreeOnTheNumberOfTransfers) {
  const Problem p = sequence(24, 4);
  Problem longer = p, half = p, causal = p;
  longer.q_len = longer.kv_len = 32;
  half.kv_dtype = DType::kBF16;
  causal.causal = true;
  for (const auto& [other, field] : {std::pair(longer, "q_len"), {half, "kv_dtype"}, {causal, "causal"}}) {
    const Timer timer;
    const auto endings = on_ranks(3, [&, &odd = other](Transport& end) {
      const Problem& mine = end.rank() == 2 ? odd : p;
      Ring ring(mine, make_layouts({}, mine, 3), one_thread(), end);
    });
    EXPECT_LT(timer.seconds(), kQuickly);
    for (const Ending& ending : endings) {
      EXPECT_TRUE(ending.failed && ending.code == ErrorCode::kTransport);
      EXPECT_THAT(ending.message, AllOf(HasSubstr(std::string("disagree on ") + field + ":"),
                                        HasSubstr("rank 0"), HasSubstr("rank 2")));
    }
  }
}

}  // namespace
}  // namespace kvring::test
