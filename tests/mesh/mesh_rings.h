// Attention on one rank of one of several rings, compared on the spot with what one rank alone computes.
#pragma once

#include "kvring/mesh.h"
#include "tests/ring/ring_support.h"

namespace kvring::test {

// A problem with the right answer. Every ring of a test gets one of its own, so that blocks that stray from
// one ring into another cannot go unnoticed.
struct Work {
  Problem problem;
  Inputs in;
  Result one;

  static Work make(std::uint64_t seed, DType dtype = DType::kF32) {
    Rng rng(seed);
    Problem p = matrix_problem(rng, MaskKind::kCausal, dtype);
    p.q_len = p.kv_len = 60 + static_cast<std::int64_t>(seed % 7);
    p.tile = 4;
    Inputs in = random_inputs(rng, p);
    Result one = one_rank(p, in);
    return {p, std::move(in), std::move(one)};
  }
};

// One rank's ring over `end` for that work.
class Member {
 public:
  Member(const Work& work, Transport& end)
      : work_(work),
        layouts_(make_layouts({}, work.problem, end.size())),
        local_(work.problem, layouts_, work.in, end.rank()),
        ring_(work.problem, layouts_, one_thread(1), end) {}

  // One call; true when this rank's rows have the bits of one rank's.
  bool attend() {
    local_.out.poison();
    local_.lse.poison();
    local_.attend(ring_);
    Result whole = work_.one;  // this rank's rows are overwritten with its own
    local_.collect(whole);
    return same_bits(whole, work_.one);
  }

 private:
  const Work& work_;
  Layouts layouts_;
  LocalTensors local_;
  Ring ring_;
};

}  // namespace kvring::test
