#include "cli/bench/block_run.h"

#include <algorithm>

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
      panels_(problem_, q_layout_.shards[0]),
      attention_(problem_, threads),
      maps_(make_block_maps(problem_, kv_layout_)),
      block_(maps_[0].bytes(problem.kv_heads)),
      accumulators_(accumulator_bytes({problem_, q_layout_.shards[0], problem.kv_heads, 1, threads})),
      q_(problem.q_dtype, {1, problem.q_len, problem.q_heads, problem.head_dim}, 1),
      k_(problem.kv_dtype, {1, problem.kv_len, 1, problem.head_dim}, 2),
      v_(problem.kv_dtype, {1, problem.kv_len, 1, problem.value_dim}, 3),
      out_(problem.out_dtype, {1, problem.q_len, problem.q_heads, problem.value_dim}, 4) {
  const Work work{problem_, q_layout_.shards[0], problem.kv_heads, 1, threads};
  set_.panels = &panels_;
  set_.units = lap_;
  set_.kv_heads = problem.kv_heads;
  read_and_write(set_, {as_const(q_.view()), {}, {}, out_.view(), {}, nullptr}, problem_);
  set_.cut = cut_work(work);
  set_.most_units = lap_.units();
  set_.sums = accumulators_.data();
  set_.used.resize(static_cast<std::size_t>(panel_states(work)));
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

void BlockRun::begin() {
  std::fill(set_.used.begin(), set_.used.end(), std::uint8_t{0});
  set_.finished = false;
}

void BlockRun::attend(const std::function<void(double)>& between) {
  const MetBlock met{&maps_[0], block_.data(), maps_[0].bytes(1)};
  attention_.attend(set_, {&met, 1}, between);
}

void BlockRun::finish() { attention_.finish(set_); }

}  // namespace kvring::cli
