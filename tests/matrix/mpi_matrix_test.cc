// The matrix over MPI: one process per rank, each with its own shards, against the reference and one rank in
// process.
#include <string>

#include "kvring/error.h"
#include "kvring/mpi.h"
#include "tests/matrix/matrix.h"
#include "tests/support/mpi_main.h"

namespace kvring::test {
namespace {

struct LocalTensors {
  OwnedTensor q, k, v, out, lse;
  LocalTensors(const Problem& p, const Inputs& in, const Shard& q_rows, const Shard& kv_rows)
      : q(p.q_dtype, {p.batch, q_rows.tokens(), p.q_heads, p.head_dim}),
        k(p.kv_dtype, {p.batch, kv_rows.tokens(), p.kv_heads, p.head_dim}),
        v(p.kv_dtype, {p.batch, kv_rows.tokens(), p.kv_heads, p.value_dim}),
        out(p.out_dtype, {p.batch, q_rows.tokens(), p.q_heads, p.value_dim}),
        lse(DType::kF32, {p.batch, p.q_heads, q_rows.tokens(), 1}) {
    shard(in.q.view(), q_rows, q.view());
    shard(in.k.view(), kv_rows, k.view());
    shard(in.v.view(), kv_rows, v.view());
  }
};

template <typename T>
std::string bytes_of(const T& view) {
  return {static_cast<const char*>(view.data),
          static_cast<std::size_t>(view.elements()) * dtype_bytes(view.dtype)};
}

// Puts every rank's rows of out and lse, gathered as bytes, in their places of the whole.
void place(const Problem& p, const Shard& rows, std::string& out, std::string& lse, Result& whole) {
  unshard(dense_view<const void>(out.data(), p.out_dtype, {p.batch, rows.tokens(), p.q_heads, p.value_dim}),
          rows, whole.out.view());
  const auto* from = reinterpret_cast<const float*>(lse.data());
  const TensorView to = whole.lse.view();
  for (std::int64_t bh = 0; bh < p.batch * p.q_heads; ++bh)
    for (std::int64_t i = 0; i < rows.tokens(); ++i)
      static_cast<float*>(to.data)[bh * p.q_len + rows.position(i)] = *from++;
}

Result run_mpi(const Problem& p, const AttendOptions& options, const Inputs& in, Transport& transport,
               int calls) {
  const Layouts layouts = make_layouts(options.layout, p, transport.size());
  const auto rank = static_cast<std::size_t>(transport.rank());
  LocalTensors local(p, in, layouts.q.shards[rank], layouts.kv.shards[rank]);
  Ring ring(p, layouts, options.ring, transport);
  const LseView lse = dense_lse_view(static_cast<float*>(local.lse.view().data),
                                     {p.batch, p.q_heads, layouts.q.shards[rank].tokens()});
  for (int call = 0; call < calls; ++call) {
    local.out.poison();
    local.lse.poison();
    ring.attend(as_const(local.q.view()), as_const(local.k.view()), as_const(local.v.view()),
                local.out.view(), lse, in.sinks_data());
  }
  Result whole{OwnedTensor(p.out_dtype, {p.batch, p.q_len, p.q_heads, p.value_dim}),
               OwnedTensor(DType::kF32, {p.batch, p.q_heads, p.q_len, 1}),
               {}};
  auto outs = transport.allgather(bytes_of(local.out.view()), "outputs");
  auto lses = transport.allgather(bytes_of(local.lse.view()), "outputs");
  for (std::size_t r = 0; r < outs.size(); ++r) place(p, layouts.q.shards[r], outs[r], lses[r], whole);
  whole.report.bits_invariant = ring.bits_invariant();
  whole.report.per_rank = {ring.report()};  // of the last call
  return whole;
}

class MpiMatrix : public testing::Test {
 protected:
  std::unique_ptr<Transport> transport_ = make_mpi_transport(MPI_COMM_WORLD, 30.0);
};

TEST_F(MpiMatrix, EveryLayoutMaskAndDtypeGivesTheReferenceAndTheBitsOfOneRankInProcess) {
  Rng rng(4000 + static_cast<std::uint64_t>(transport_->size()));
  for (MaskKind mask : kMasks) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Problem p = matrix_problem(rng, mask, dtype);
      const Inputs in = random_inputs(rng, p, rng.chance(0.5) ? Fill::kAdversarial : Fill::kNormal);
      AttendOptions options;
      options.ring.threads = 1;
      const Result one = run_inproc(p, options, in);
      if (transport_->rank() == 0) expect_reference(p, in, one, describe(p));
      for (LayoutKind layout : {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped}) {
        options.layout = {layout};
        options.ring.threads = static_cast<int>(rng.between(1, 2));
        options.ring.heads_per_lap = rng.between(0, 2);
        const Result r = run_mpi(p, options, in, *transport_, 2);
        ASSERT_TRUE(r.report.bits_invariant);
        ASSERT_TRUE(same_bits(r, one)) << layout_name(layout) << ": " << describe(p);
      }
    }
  }
}

TEST_F(MpiMatrix, EveryScheduleGivesTheBitsOfOneRankInProcessAndSendsWhatIsPlanned) {
  const int ranks = transport_->size();
  Rng rng(4500 + static_cast<std::uint64_t>(ranks));
  for (MaskKind mask : kMasks) {
    const Problem p = shareable_problem(rng, mask, static_cast<DType>(rng.between(0, 2)), ranks);
    const Inputs in = random_inputs(rng, p, rng.chance(0.5) ? Fill::kAdversarial : Fill::kNormal);
    AttendOptions options;
    options.ring.threads = 1;
    const Result one = run_inproc(p, options, in);
    if (transport_->rank() == 0) expect_reference(p, in, one, describe(p));
    for (ScheduleKind schedule : kSchedules) {
      options.layout = {static_cast<LayoutKind>(rng.between(0, 2))};
      options.ring.schedule = schedule;
      options.ring.threads = static_cast<int>(rng.between(1, 2));
      options.ring.heads_per_lap = shareable_lap(rng, p, schedule, ranks);
      const Result r = run_mpi(p, options, in, *transport_, 2);
      ASSERT_TRUE(same_bits(r, one)) << schedule_name(schedule) << ": " << describe(p);
      const Layouts layouts = make_layouts(options.layout, p, ranks);
      ASSERT_EQ(sent(r.report.per_rank.at(0)), planned(p, layouts, options.ring, transport_->rank()))
          << schedule_name(schedule) << ": " << describe(p);
    }
  }
}

TEST_F(MpiMatrix, ShardsCutInsideTilesAreExactWithinTheBound) {
  Rng rng(5000 + static_cast<std::uint64_t>(transport_->size()));
  for (MaskKind mask : kMasks) {
    Problem p = matrix_problem(rng, mask, DType::kBF16);
    p.accumulation = rng.chance(0.5) ? Accumulation::kOnline : Accumulation::kReproducible;
    const Inputs in = random_inputs(rng, p);
    AttendOptions options;
    options.layout = {LayoutKind::kZigzag, 0, Cut::kTokens};
    const Result r = run_mpi(p, options, in, *transport_, 1);
    if (transport_->rank() == 0) expect_reference(p, in, r, describe(p));
  }
}

// ranks disagree on the number of transfers
TEST_F(MpiMatrix, RanksThatDisagreeAllGetAnErrorNamingTheField) {
  if (transport_->size() < 2) GTEST_SKIP() << "needs two ranks";
  Rng rng(6000);
  Problem p = matrix_problem(rng, MaskKind::kFull, DType::kF32);
  if (transport_->rank() == 1) p.q_len += 1;
  std::string message;
  try {
    const Ring ring(p, make_layouts({}, p, transport_->size()), {}, *transport_);
  } catch (const TransportError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("q_len"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
}

}  // namespace
}  // namespace kvring::test

int main(int argc, char** argv) { return kvring::test::run_mpi_tests(argc, argv); }
