#include "cli/row_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "io/generate.h"
#include "kvring/attend.h"

namespace kvring::cli {
namespace {

Problem problem_of(std::int64_t batch, std::int64_t q_len, std::int64_t q_heads, std::int64_t kv_len) {
  Problem p;
  p.batch = batch;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.q_heads = q_heads;
  p.kv_heads = 1;
  p.head_dim = p.value_dim = 4;
  return p;
}

TEST(SampleRows, AreSortedDistinctAndHoldBothEnds) {
  const Problem p = problem_of(2, 50, 3, 1000);
  for (std::int64_t count : {1, 2, 3, 5, 77, 299, 300, 1000}) {
    const std::vector<RowId> rows = sample_rows(p, count, 11);
    EXPECT_EQ(std::ssize(rows), std::min<std::int64_t>(count, 300));
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()) &&
                std::adjacent_find(rows.begin(), rows.end()) == rows.end())
        << count;
    EXPECT_EQ(rows.back(), (RowId{1, 49, 2}));
    if (count > 1) {
      EXPECT_EQ(rows.front(), (RowId{0, 0, 0}));
    }
  }
}

TEST(SampleRows, DependOnTheSeedAlone) {
  const Problem p = problem_of(1, 100000, 8, 100000);
  EXPECT_EQ(sample_rows(p, {}, 1), sample_rows(p, {}, 1));
  EXPECT_NE(sample_rows(p, {}, 1), sample_rows(p, {}, 2));
  EXPECT_EQ(sample_rows(p, {}, 1).size(), 64u);
}

TEST(SampleRows, AreAllWhereThatIsCheap) {
  EXPECT_EQ(sample_rows(problem_of(1, 100, 2, 100), {}, 0).size(), 200u);
  EXPECT_EQ(sample_rows(problem_of(1, 0, 2, 100), {}, 0).size(), 0u);
  EXPECT_EQ(sample_rows(problem_of(1, 100, 2, 0), {}, 0).size(), 200u);
}

TEST(ErrorStats, KeepsTheValueNearestToItsBound) {
  ErrorStats stats;
  stats.add(1.5, 1.0, 2.0, 10.0, {0, 1, 0});
  stats.add(1.1, 1.0, 2.0, 0.2, {0, 2, 0});
  stats.add(1.0, 1.0, 2.0, 0.1, {0, 3, 0});
  EXPECT_DOUBLE_EQ(stats.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(stats.max_rel, 0.25);
  EXPECT_NEAR(stats.over_bound, 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(stats.bound, 0.2);
  EXPECT_EQ(stats.worst, (RowId{0, 2, 0}));
}

TEST(ErrorStats, NotANumberIsInfinitelyWrong) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ErrorStats right;
  right.add(kNan, kNan, 1.0, 0.0, {});
  EXPECT_EQ(right.max_abs, 0);
  EXPECT_EQ(right.over_bound, 0);
  ErrorStats wrong;
  wrong.add(kNan, 1.0, 1.0, 0.1, {});
  EXPECT_TRUE(std::isinf(wrong.max_abs));
  EXPECT_GT(wrong.over_bound, 1);
  ErrorStats unexpected;
  unexpected.add(1.0, kNan, 1.0, 0.0, {});
  EXPECT_GT(unexpected.over_bound, 1);
}

// Attention of a small file, then the check of all its rows.
class CheckRows : public testing::Test {
 protected:
  CheckRows() {
    GenerateSpec spec;
    spec.q_shape = {2, 30, 4, 8};
    spec.kv_shape = {2, 20, 2, 8};
    spec.value_dim = 6;
    generate(spec, path_);
    const TensorFile file(path_);
    Problem p = problem_of(2, 30, 4, 20);
    p.kv_heads = 2;
    p.head_dim = 8;
    p.value_dim = 6;
    job_ = std::make_unique<Job>(
        Job{file.tensor("q"), file.tensor("k"), file.tensor("v"), {}, p, {}, {}, {}, {}, {}});
    attend_all();
  }
  ~CheckRows() override { std::filesystem::remove(path_); }

  void attend_all() {
    const Problem& p = job_->problem;
    const Shard all({{0, 30}}), all_kv({{0, 20}});
    std::vector<float> q(2 * 30 * 4 * 8), k(2 * 20 * 2 * 8), v(2 * 20 * 2 * 6);
    const auto q_view = dense_view<void>(q.data(), DType::kF32, {2, 30, 4, 8});
    const auto k_view = dense_view<void>(k.data(), DType::kF32, {2, 20, 2, 8});
    const auto v_view = dense_view<void>(v.data(), DType::kF32, {2, 20, 2, 6});
    job_->q.read_shard(all, q_view);
    job_->k.read_shard(all_kv, k_view);
    job_->v.read_shard(all_kv, v_view);
    const auto out = dense_view<void>(out_.data(), DType::kF32, {2, 30, 4, 6});
    const LseView lse = dense_lse_view(lse_.data(), {2, 4, 30});
    attend(p, {}, as_const(q_view), as_const(k_view), as_const(v_view), out, lse);
    packed_ = pack_rows(sample_rows(p, {}, 0), all, as_const(out), lse);
  }

  RowCheck check(const std::vector<ComputedRow>& rows) {
    return check_rows(*job_, rows, [](double) {});
  }

  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("kvring_rows_" + std::to_string(::getpid()) + ".safetensors"))
                          .string();
  std::unique_ptr<Job> job_;
  std::vector<float> out_ = std::vector<float>(2 * 30 * 4 * 6);
  std::vector<float> lse_ = std::vector<float>(2 * 4 * 30);
  std::string packed_;
};

TEST_F(CheckRows, PassesWhatIsRight) {
  const RowCheck result = check(unpack_rows({"", packed_}, 6));
  EXPECT_TRUE(result.passed);
  EXPECT_EQ(result.rows, 2 * 30 * 4);
  EXPECT_GT(result.out.max_abs, 0);
}

TEST_F(CheckRows, FailsOneWrongValueOfOneRow) {
  std::vector<ComputedRow> rows = unpack_rows({packed_}, 6);
  rows[100].out[3] += 1e-3f;
  const RowCheck result = check(rows);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.out.worst, rows[100].id);
  EXPECT_LE(result.lse.over_bound, 1);
}

TEST_F(CheckRows, FailsOneWrongLse) {
  std::vector<ComputedRow> rows = unpack_rows({packed_}, 6);
  rows[7].lse = -std::numeric_limits<float>::infinity();
  const RowCheck result = check(rows);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.lse.worst, rows[7].id);
}

}  // namespace
}  // namespace kvring::cli
