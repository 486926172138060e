#include "cli/bench/case.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "kvring/error.h"
#include "mask/mask.h"

namespace kvring::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

KernelCase any_case() {
  const auto pick = [](std::vector<std::int64_t> values) { return *rc::gen::elementOf(values); };
  KernelCase c;
  c.dtype = *rc::gen::element(DType::kF32, DType::kBF16, DType::kF16);
  using Mask = KernelCase::Mask;
  c.mask = *rc::gen::element(Mask::kFull, Mask::kCausal, Mask::kDecode, Mask::kWindow);
  c.keys = *rc::gen::inRange<std::int64_t>(1, 300);
  if (c.mask == Mask::kDecode) c.mask_size = *rc::gen::inRange<std::int64_t>(1, c.keys + 1);
  if (c.mask == Mask::kWindow) c.mask_size = *rc::gen::inRange<std::int64_t>(1, 400);
  c.head_dim = pick({1, 64, 80, 256});
  c.value_dim = pick({1, 64, 128});
  c.group = pick({1, 2, 8});
  c.online = *rc::gen::arbitrary<bool>();
  c.threads = *rc::gen::inRange(1, 5);
  return c;
}

RC_GTEST_PROP(KernelCases, NameSaysAll, ()) {
  const KernelCase c = any_case();
  RC_ASSERT(parse_case(case_name(c), 1) == c);
}

TEST(KernelCases, NamesOfTheTableAreCanonical) {
  for (const auto& names : {default_cases(), quick_cases()}) {
    for (const std::string& name : names) EXPECT_EQ(case_name(parse_case(name, 1)), name);
  }
}

TEST(KernelCases, ThreadsAreTheCommandsUnlessNamed) {
  EXPECT_EQ(parse_case("f32-full-d64-n8", 3).threads, 3);
  EXPECT_EQ(parse_case("f32-full-d64-n8-t2", 3).threads, 2);
  EXPECT_EQ(parse_case("f32-full-d64-n8-t1", 3).threads, 1);
}

TEST(KernelCases, BadNamesAreRefusedNamingTheFault) {
  for (const auto& [name, fault] : {std::pair("", "must begin with f32-"),
                                    {"f64-full-d64-n8", "must begin with f32-"},
                                    {"f32-ful-d64-n8", "full, causal, decode<queries> or window<width>"},
                                    {"f32-decode-d64-n8", "1 to 268435456, the queries of decode"},
                                    {"f32-decode9-d64-n8", "9 queries are more than 8 keys"},
                                    {"f32-full-d257-n8", "1 to 256, the dim"},
                                    {"f32-full-d64v0-n8", "1 to 256, the dim of v"},
                                    {"f32-full-d64", "it ends before -n, the number of keys"},
                                    {"f32-full-d64-n99999999999999999999", "the number of keys"},
                                    {"f32-full-d64-n-8", "the number of keys"},
                                    {"f32-full-d64-n8x", "'x' is none of -gqa<heads>"},
                                    {"f32-full-d64-n8-gqa1", "gqa1 is the case without gqa"},
                                    {"f32-full-d64-n8-t2-t2", "threads twice"},
                                    {"f32-full-d64-n8-online-online", "online twice"},
                                    {"f32-full-d64-n8-gqa2-gqa2", "gqa twice"}}) {
    EXPECT_THAT([name = name] { parse_case(name, 1); },
                ThrowsMessage<InvalidArgument>(
                    testing::AllOf(HasSubstr(fault), HasSubstr("such as f32-causal-d128-n8192"))))
        << name;
  }
}

RC_GTEST_PROP(KernelCases, MasksSeeWhatTheirNamesSay, ()) {
  const KernelCase c = any_case();
  const Problem p = case_problem(c, 1);
  validate(p);
  const Mask mask(p);
  using Kind = KernelCase::Mask;
  for (std::int64_t q = 0; q < p.q_len; ++q) {
    const std::int64_t position = c.keys - p.q_len + q;
    const std::int64_t end = c.mask == Kind::kFull ? c.keys : position + 1;
    const std::int64_t begin = c.mask == Kind::kWindow ? std::max<std::int64_t>(0, end - c.mask_size) : 0;
    RC_ASSERT(mask.visible(q) == (Range{begin, end}));
  }
}

TEST(KernelCases, FlopsAreThoseOfVisiblePairs) {
  const auto flops = [](const char* name) { return needed_flops(case_problem(parse_case(name, 1), 1)); };
  EXPECT_EQ(flops("f32-full-d64-n100"), 4.0 * 100 * 100 * 64);
  EXPECT_EQ(flops("f32-causal-d64-n100"), 4.0 * 5050 * 64);
  EXPECT_EQ(flops("f32-full-d192v128-n100"), 2.0 * 100 * 100 * 320);
  EXPECT_EQ(flops("bf16-decode4-d64-n100"), 4.0 * (97 + 98 + 99 + 100) * 64);
  EXPECT_EQ(flops("f32-window10-d64-n100"), 4.0 * (45 + 91 * 10) * 64);
  EXPECT_EQ(flops("f32-full-d64-n100-gqa8"), 8 * flops("f32-full-d64-n100"));
  EXPECT_EQ(kv_bytes(case_problem(parse_case("bf16-decode4-d64-n100", 1), 3)), 3.0 * 100 * 128 * 2);
}

TEST(KernelCases, ComparedWithTheCaseWithoutTheLastSuffix) {
  const auto base = [](const char* name) {
    const KernelCase c = parse_case(name, 1);
    const auto suffix = last_suffix(c);
    return suffix ? case_name(without(c, *suffix)) : "";
  };
  EXPECT_EQ(base("f32-full-d64-n8"), "");
  EXPECT_EQ(base("f32-full-d64-n8-gqa4"), "f32-full-d64-n8");
  EXPECT_EQ(base("f32-full-d64-n8-gqa4-online"), "f32-full-d64-n8-gqa4");
  EXPECT_EQ(base("f32-full-d64-n8-gqa4-online-t2"), "f32-full-d64-n8-gqa4-online");
}

TEST(KernelCases, TargetsAreThoseOfTheTable) {
  const auto target = [](const char* name) { return target_fraction(parse_case(name, 1)); };
  EXPECT_EQ(target("f32-full-d64-n8192"), 0.87);
  EXPECT_EQ(target("f32-causal-d128-n32768"), 0.84);
  EXPECT_EQ(target("bf16-full-d128-n8192"), 0.82);
  EXPECT_EQ(target("bf16-causal-d64-n8192"), 0.79);
  EXPECT_EQ(target("f32-full-d192v128-n8192"), 0.75);
  EXPECT_EQ(target("f32-full-d64-n4097"), 0.75);
  EXPECT_EQ(target("bf16-decode16-d128-n131072"), 0.85);
  EXPECT_EQ(target("f16-full-d64-n8192"), std::nullopt);
  EXPECT_EQ(target("f32-full-d64-n8192-t2"), std::nullopt);
  EXPECT_EQ(target("f32-full-d64-n8192-online"), std::nullopt);
  EXPECT_EQ(ratio_target(parse_case("f32-full-d64-n8-t2", 1), KernelCase::Suffix::kThreads).limit, 1.95);
}

}  // namespace
}  // namespace kvring::cli
