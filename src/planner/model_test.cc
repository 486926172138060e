#include "planner/model.h"

#include <gtest/gtest.h>

#include <map>

namespace kvring {
namespace {

// Llama 3 8B (arXiv 2407.21783, table 3).
Workload llama_8b() {
  Workload w;
  w.problem.q_heads = 32;
  w.problem.kv_heads = 8;
  w.problem.head_dim = w.problem.value_dim = 128;
  w.problem.q_dtype = w.problem.kv_dtype = w.problem.out_dtype = DType::kBF16;
  w.layers = 32;
  w.model = Model{4096, 14336, 128256};
  return w;
}

std::map<std::string, std::int64_t> memory(const Workload& w, const Mesh& mesh, int ranks) {
  const Ledger ledger = model_memory({w, w, mesh, ranks, 1000, 2000});
  return {ledger.begin(), ledger.end()};
}

TEST(Model, CountsTheParametersOfLlama3) {
  // Published: 8,030,261,248, of which 65 norms of 4,096 are not counted here.
  EXPECT_EQ(count_params(llama_8b()), 8'030'261'248 - 65 * 4096);
  Workload given = llama_8b();
  given.model->params = 7;
  EXPECT_EQ(count_params(given), 7);
}

TEST(Model, InferenceHoldsWeightsStatesAndCache) {
  const Workload w = llama_8b();
  auto m = memory(w, {2, 2, 1}, 4);
  EXPECT_EQ(m["weights"], count_params(w) * 2 / 4);
  EXPECT_EQ(m["activations"], 2 * 1000 * 4096 * 2);
  EXPECT_EQ(m["kv_cache"], 31 * 2000 * 8 * 256 * 2);  // the layer at work is in the ring's own ledger
  EXPECT_EQ(m.size(), 3u);
}

// Rajbhandari and others, ZeRO, arXiv 1910.02054: mixed precision Adam takes 2 + 2 + 12 bytes per parameter.
TEST(Model, ZeroCutsOverAllCopiesOfTheWeights) {
  Workload w = llama_8b();
  w.model->training = true;
  w.model->params = 1'000'000;
  const Mesh mesh{1, 1, 2};
  for (int stage = 0; stage <= 3; ++stage) {
    w.model->zero = stage;
    auto m = memory(w, mesh, 5);
    EXPECT_EQ(m["weights"], 2'000'000 / (stage >= 3 ? 10 : 1)) << stage;
    EXPECT_EQ(m["gradients"], 2'000'000 / (stage >= 2 ? 10 : 1)) << stage;
    EXPECT_EQ(m["optimizer"], 12'000'000 / (stage >= 1 ? 10 : 1)) << stage;
    EXPECT_EQ(m["activations"], 33 * 1000 * 4096 * 2) << stage;
    EXPECT_FALSE(m.contains("kv_cache"));
  }
}

TEST(Model, NothingWithoutAModel) {
  Workload w = llama_8b();
  w.model.reset();
  EXPECT_TRUE(memory(w, {}, 2).empty());
}

}  // namespace
}  // namespace kvring
