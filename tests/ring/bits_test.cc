// Nothing but the inputs decides the bits: not arrival orders, instruction sets or the host's rounding mode.
#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernel/tile.h"
#include "tests/ring/odd_transports.h"

namespace kvring::test {
namespace {

// Many laps: under a causal mask the first rank of a contiguous layout needs nobody and runs ahead of all
// others.
TEST(RingBits, RandomArrivalOrdersChangeNoBit) {
  constexpr LayoutKind kKinds[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};
  Rng rng(261);
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Problem p = matrix_problem(rng, kMasks[seed % 6], static_cast<DType>(rng.between(0, 2)));
    p.q_heads = p.kv_heads = 8;
    const Inputs in = random_inputs(rng, p, Fill::kAdversarial);
    const int ranks = static_cast<int>(rng.between(2, 5));
    RingOptions options = one_thread(1);
    options.threads = static_cast<int>(rng.between(1, 2));
    const Layouts layouts =
        make_layouts({kKinds[(seed + seed / 6) % 3]}, p, ranks);  // every mask with every layout
    const Result r = run_ring(odd_transports<Late>(ranks, seed), p, layouts, options, in);
    ASSERT_TRUE(same_bits(r, one_rank(p, in))) << describe(p);
  }
}

TEST(RingBits, CopiesThatRendezvousChangeNoBit) {
  Rng rng(262);
  for (MaskKind mask : kMasks) {
    for (int ranks : {1, 2, 3, 4, 7}) {
      const Problem p = matrix_problem(rng, mask, DType::kF16);
      const Inputs in = random_inputs(rng, p);
      for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
        const Result r = run_ring(odd_transports<Rendezvous>(ranks), p, make_layouts({layout}, p, ranks),
                                  one_thread(1 + ranks % 2), in);
        ASSERT_TRUE(same_bits(r, one_rank(p, in))) << ranks << " ranks, " << describe(p);
      }
    }
  }
}

// Restores the best instruction set whatever a test does.
struct BestIsaAgain {
  ~BestIsaAgain() { force_kernel_isa(""); }
};

TEST(RingBits, InstructionSetsChangeNoBitFromEndToEnd) {
  const BestIsaAgain guard;
  Rng rng(263);
  for (MaskKind mask : kMasks) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Problem p = matrix_problem(rng, mask, dtype);
      const Inputs in = random_inputs(rng, p, Fill::kAdversarial);
      force_kernel_isa("");
      const Result best = one_rank(p, in);
      for (const std::string& isa : kernel_isas()) {
        force_kernel_isa(isa);
        ASSERT_TRUE(same_bits(run_ring(p, make_layouts({}, p, 3), one_thread(), in), best))
            << isa << ": " << describe(p);
      }
    }
  }
}

// Flush-to-zero, denormals-are-zero and rounding down, as a host may have set them for its own ends.
class HostEnvironment {
 public:
  HostEnvironment() {
    std::fegetenv(&saved_);
    std::fesetround(FE_DOWNWARD);
#if defined(__SSE__)
    _mm_setcsr(_mm_getcsr() | 0x8040u);
    control_ = control();
#endif
  }
  ~HostEnvironment() { std::fesetenv(&saved_); }
  bool untouched() const {
#if defined(__SSE__)
    if (control() != control_) return false;
#endif
    return std::fegetround() == FE_DOWNWARD;
  }

 private:
#if defined(__SSE__)
  static unsigned control() { return _mm_getcsr() & ~0x3fu; }  // without the exception flags
  unsigned control_ = 0;
#endif
  std::fenv_t saved_;
};

TEST(RingBits, HostThatFlushesToZeroAndRoundsDownGetsTheSameBits) {
  Rng rng(264);
  for (int trial = 0; trial < 24; ++trial) {
    Problem p = matrix_problem(rng, kMasks[trial % 6], trial % 2 ? DType::kF32 : DType::kF16);
    if (trial % 3 == 0) p.softcap = 7.3;
    if (trial % 4 == 0) p.softmax_scale = 0.1 + 0.01 * trial;
    const Inputs in = random_inputs(rng, p, Fill::kAdversarial);
    AttendOptions options;
    options.ranks = 1 + trial % 3;
    options.ring.threads = 1 + trial % 2;
    const Result usual = run_inproc(p, options, in);
    const Layouts layouts = make_layouts({}, p, 1);
    Result odd = empty_result(p), alone = empty_result(p);
    {
      const HostEnvironment host;
      odd = run_inproc(p, options, in);
      EXPECT_TRUE(host.untouched());
      const Transports ends = make_inproc_transports(1, kDeadline);
      Ring ring(p, layouts, one_thread(), *ends[0]);
      EXPECT_TRUE(host.untouched());
      LocalTensors local(p, layouts, in, 0);
      local.attend(ring);
      EXPECT_TRUE(host.untouched());
      local.collect(alone);
    }
    ASSERT_TRUE(same_bits(odd, usual)) << describe(p);
    ASSERT_TRUE(same_bits(alone, usual)) << describe(p);
  }
}

// One rank whose host rounds down is asked for the same problem as the others.
TEST(RingBits, HostThatRoundsDownOnOneRankAgreesWithTheOthers) {
  Problem p = plain_problem(64, 8);
  p.head_dim = 3;  // 1 / sqrt(3) depends on the rounding mode
  Rng rng(265);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 3);
  Result result = empty_result(p);
  expect_no_failure(on_ranks(3, [&](Transport& end) {
    std::optional<HostEnvironment> host;
    if (end.rank() == 1) host.emplace();
    Ring ring(p, layouts, one_thread(), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    local.collect(result);
  }));
  EXPECT_TRUE(same_bits(result, one_rank(p, in)));
}

// A value of plus infinity in a tile whose weights are far below float32's smallest, before and after the
// tile with the maximum: a weight is small, but never zero.
TEST(RingBits, InfiniteValueFarBelowTheMaximumStaysInfinite) {
  Problem p = plain_problem(12, 4);
  p.q_heads = p.kv_heads = 1;
  p.softmax_scale = 1;
  Rng rng(266);
  for (Accumulation accumulation : {Accumulation::kReproducible, Accumulation::kOnline}) {
    p.accumulation = accumulation;
    for (std::int64_t infinite_key : {1, 6, 11}) {
      for (double below : {100.0, 400.0, 5000.0}) {
        for (bool sinks : {false, true}) {
          p.has_sinks = sinks;
          Inputs in = random_inputs(rng, p);
          if (sinks) in.sinks[0] = 1500;  // beyond every key
          for (std::int64_t s = 0; s < 12; ++s) {
            for (std::int64_t d = 0; d < 8; ++d) {
              store_element(in.q.view().data, DType::kF32, 8 * s + d, d == 0);
              store_element(in.k.view().data, DType::kF32, 8 * s + d,
                            d == 0 ? (s / 4 == 1 ? 3.0 : -below) : 0);
            }
          }
          store_element(in.v.view().data, DType::kF32, 8 * infinite_key + 2,
                        std::numeric_limits<double>::infinity());
          const Result one = one_rank(p, in);
          expect_reference(p, in, one, describe(p));
          if (accumulation == Accumulation::kOnline) continue;
          for (int ranks : {2, 3}) {
            for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag}) {
              EXPECT_TRUE(same_bits(run_ring(p, make_layouts({layout}, p, ranks), one_thread(), in), one));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvring::test
