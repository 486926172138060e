// One ring for many layers.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/ring/odd_transports.h"

namespace {

// The largest single allocation while it is watched.
std::atomic<bool> watched{false};
std::atomic<std::size_t> largest_allocation{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (watched) {
    std::size_t largest = largest_allocation;
    while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
    }
  }
  void* p = nullptr;
  if (posix_memalign(&p, alignment, std::max<std::size_t>(bytes, 1)) != 0) throw std::bad_alloc();
  return p;
}

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads): replaced for the whole program, in pairs that all use free().
void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
// NOLINTEND(misc-new-delete-overloads)

namespace kvring::test {
namespace {

TEST(RingLayers, ManyLayersThroughOneRingGiveWhatSeparateCallsGive) {
  constexpr int kRanks = 3, kLayers = 5;
  Rng rng(201);
  Problem p = matrix_problem(rng, MaskKind::kCausal, DType::kBF16);
  p.q_len = p.kv_len = 77;
  std::vector<Inputs> inputs;
  std::vector<Result> results;
  for (int layer = 0; layer < kLayers; ++layer) {
    inputs.push_back(random_inputs(rng, p));
    results.push_back(empty_result(p));
  }
  const Layouts layouts = make_layouts({}, p, kRanks);
  for (const bool copying : {false, true}) {
    for (Result& r : results) r.out.poison(), r.lse.poison();
    expect_no_failure(
        on_ranks(copying ? odd_transports<Rendezvous>(kRanks) : make_inproc_transports(kRanks, kDeadline),
                 [&](Transport& end) {
                   Ring ring(p, layouts, one_thread(1), end);
                   for (int layer = 0; layer < kLayers; ++layer) {
                     LocalTensors local(p, layouts, inputs[static_cast<std::size_t>(layer)], end.rank());
                     local.attend(ring);
                     local.collect(results[static_cast<std::size_t>(layer)]);
                   }
                 }));
    for (std::size_t layer = 0; layer < kLayers; ++layer)
      EXPECT_TRUE(same_bits(results[layer], one_rank(p, inputs[layer]))) << "layer " << layer;
  }
}

TEST(RingLayers, LaterCallsAllocateNothingButSmallStringsAndTheLedgerStays) {
  constexpr int kRanks = 4;
  const Problem p = plain_problem(512, 32);
  Rng rng(202);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, kRanks);
  largest_allocation = 0;
  expect_no_failure(on_ranks(kRanks, [&](Transport& end) {
    Ring ring(p, layouts, one_thread(1), end);
    LocalTensors local(p, layouts, in, end.rank());
    local.attend(ring);
    const auto ledger = ring.report().ledger_bytes;
    end.barrier("the first layer");
    watched = true;
    for (int layer = 0; layer < 4; ++layer) {
      local.attend(ring);
      EXPECT_EQ(ring.report().ledger_bytes, ledger);
    }
    end.barrier("the last layer");
    watched = false;
  }));
  // The smallest buffer, a block of one head, has 8 KiB.
  EXPECT_LT(largest_allocation, 1024u);
  EXPECT_GT(largest_allocation, 0u);
}

// The ring waits for its readers before it goes, so a rank may leave at once.
TEST(RingLayers, RanksMayLeaveAtDifferentTimes) {
  const Problem p = plain_problem(96, 8);
  Rng rng(203);
  const Inputs in = random_inputs(rng, p);
  const Layouts layouts = make_layouts({}, p, 3);
  for (int late = 0; late < 3; ++late) {
    expect_no_failure(on_ranks(3, [&](Transport& end) {
      Ring ring(p, layouts, one_thread(1), end);
      LocalTensors local(p, layouts, in, end.rank());
      if (end.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      local.attend(ring);
      if (end.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }));
  }
}

TEST(RingLayers, RingsMadeOneAfterAnotherOnOneTransport) {
  Rng rng(204);
  std::vector<Problem> problems;
  std::vector<Inputs> inputs;
  std::vector<Result> results;
  for (MaskKind mask : kMasks) {
    problems.push_back(matrix_problem(rng, mask, DType::kF32));
    inputs.push_back(random_inputs(rng, problems.back()));
    results.push_back(empty_result(problems.back()));
  }
  expect_no_failure(on_ranks(3, [&](Transport& end) {
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const Layouts layouts = make_layouts({}, problems[i], 3);
      Ring ring(problems[i], layouts, one_thread(), end);
      LocalTensors local(problems[i], layouts, inputs[i], end.rank());
      local.attend(ring);
      local.collect(results[i]);
    }
  }));
  for (std::size_t i = 0; i < problems.size(); ++i)
    EXPECT_TRUE(same_bits(results[i], one_rank(problems[i], inputs[i]))) << describe(problems[i]);
}

}  // namespace
}  // namespace kvring::test
