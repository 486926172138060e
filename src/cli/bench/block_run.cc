#include "cli/bench/block_run.h"

namespace kvring::cli {
namespace {

Layout whole(const Problem& problem, std::int64_t tokens) {
  return make_layout({}, tokens, {}, problem.tile, 1);
}

ConstTensorView repeated(const TensorView& head, std::int64_t heads) {
  ConstTensorView view = as_const(head);
  view.shape[2] = heads;
  view.stride[2] = 0;
  return view;
}

}  // namespace

BlockRun::BlockRun(const Problem& problem, int threads)
    : problem_(problem),
      q_layout_(whole(problem, problem.q_len)),
      kv_layout_(whole(problem, problem.kv_len)),
      lap_{0, problem.kv_heads},
      attention_({problem_, q_layout_.shards[0], problem.kv_heads, 1, threads}),
      maps_(make_block_maps(problem_, kv_layout_)),
      block_(maps_[0].bytes(problem.kv_heads)),
      q_(problem.q_dtype, {1, problem.q_len, problem.q_heads, problem.head_dim}, 1),
      k_(problem.kv_dtype, {1, problem.kv_len, 1, problem.head_dim}, 2),
      v_(problem.kv_dtype, {1, problem.kv_len, 1, problem.value_dim}, 3),
      out_(problem.out_dtype, {1, problem.q_len, problem.q_heads, problem.value_dim}, 4) {
  pack();
}

void BlockRun::run(const std::function<void(double)>& between) {
  begin();
  attend(between);
  finish();
}

void BlockRun::pack() {
  const std::int64_t heads = problem_.kv_heads;
  attention_.pack(lap_, maps_[0], {repeated(k_.view(), heads), repeated(v_.view(), heads)}, block_.data());
}

void BlockRun::begin() { attention_.begin(lap_); }

void BlockRun::attend(const std::function<void(double)>& between) {
  attention_.attend(tensors(), maps_[0], block_.data(), between);
}

void BlockRun::finish() { attention_.finish(tensors()); }

RankTensors BlockRun::tensors() { return {as_const(q_.view()), {}, {}, out_.view(), {}, nullptr}; }

}  // namespace kvring::cli
