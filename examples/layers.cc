// A few layers of attention over a sharded sequence: one kvring::Ring per rank, made once and used for every
// layer, each rank with the tensors of its own tokens. Nobody holds the whole sequence.
//
//   layers               rings of 1 to 8 ranks, each rank a thread of this process
//   mpirun -n 4 layers   a ring of 4 processes beside a ring of 1, where it was built with MPI
// Whatever the size of the ring, the last layer's output must have the same bits.
#include <kvring/ring.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>
#ifdef LAYERS_WITH_MPI
#include <kvring/mpi.h>
#endif

namespace {
constexpr int kLayers = 4;
constexpr double kDeadline = 30;  // seconds that a rank waits for one that shows no sign of life

kvring::Problem make_problem() {
  kvring::Problem p;
  p.q_len = p.kv_len = 1500;  // divides by no ring size worth having
  p.q_heads = 4;
  p.kv_heads = 2;
  p.head_dim = p.value_dim = 32;
  p.causal = true;
  p.tile = 64;  // the default of 512 would leave a sequence this short with 3 tiles to share out
  return p;
}

// Every rank calls this with its own end of the transport. Returns a digest of the whole last output.
std::uint64_t run_layers(kvring::Transport& transport) {
  const kvring::Problem p = make_problem();
  const kvring::Layouts layouts = kvring::make_layouts({}, p, transport.size());  // zigzag, cut at tiles
  const kvring::Shard& mine = layouts.q.shards[static_cast<std::size_t>(transport.rank())];
  kvring::Ring ring(p, layouts, {}, transport);

  const auto tokens = static_cast<std::size_t>(mine.tokens());
  const auto width = static_cast<std::size_t>(p.q_heads * p.head_dim),
             kv_width = width * p.kv_heads / p.q_heads;
  std::vector<float> x(tokens * width), out(x.size()), k(tokens * kv_width), v(k.size());
  const auto view = [&](std::vector<float>& t, std::int64_t heads) {
    return kvring::dense_view<void>(t.data(), kvring::DType::kF32, {1, mine.tokens(), heads, p.head_dim});
  };
  // An element's number in the whole tensor, wherever its token lives.
  const auto number = [&](std::size_t i) {
    return static_cast<std::uint64_t>(mine.position(static_cast<std::int64_t>(i / width))) * width +
           i % width;
  };
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(number(i) * 37 % 257) / 64 - 2;
  std::int64_t bytes_sent = 0;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = 0; i < k.size(); ++i) {  // stand-ins for a model's projections
      k[i] = x[i / kv_width * width + i % kv_width];
      v[i] = x[i / kv_width * width + (i + layer + 1) % kv_width];
    }
    ring.attend(as_const(view(x, p.q_heads)), as_const(view(k, p.kv_heads)), as_const(view(v, p.kv_heads)),
                view(out, p.q_heads));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += out[i];
    bytes_sent += ring.report().bytes_sent;
  }
  std::uint64_t mine_digest = 0, digest = 0;  // sums, since ranks hold their rows in different orders
  for (std::size_t i = 0; i < x.size(); ++i)
    mine_digest += (number(i) * 2 + 1) * 0x9e3779b97f4a7c15u * (std::bit_cast<std::uint32_t>(x[i]) + 1ull);
  for (const std::string& theirs : transport.allgather(std::to_string(mine_digest), "the digests"))
    digest += std::stoull(theirs);
  if (transport.rank() == 0)
    std::printf("%5d  %11.2f  %8.2f  %016llx\n", transport.size(),
                static_cast<double>(ring.report().peak_bytes) / 1e6, static_cast<double>(bytes_sent) / 1e6,
                static_cast<unsigned long long>(digest));
  return digest;
}

std::uint64_t run_or_exit(kvring::Transport& transport) try {
  return run_layers(transport);
} catch (const std::exception& error) {
  transport.fail(error.what());  // so that no rank waits for this one
  std::fprintf(stderr, "rank %d: %s\n", transport.rank(), error.what());
  std::exit(1);
}

std::uint64_t run_threads(int ranks) {
  const auto transports = kvring::make_inproc_transports(ranks, kDeadline);
  std::vector<std::thread> others;
  for (std::size_t r = 1; r < transports.size(); ++r)
    others.emplace_back([&end = *transports[r]] { run_or_exit(end); });
  const std::uint64_t digest = run_or_exit(*transports[0]);
  for (std::thread& thread : others) thread.join();
  return digest;
}

}  // namespace

int main([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {
  bool same = true;
#ifdef LAYERS_WITH_MPI
  if (std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_RANK") || std::getenv("PMIX_RANK")) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    {  // the transport must be gone before MPI_Finalize
      const auto transport = kvring::make_mpi_transport(MPI_COMM_WORLD, kDeadline);
      const std::uint64_t digest = run_or_exit(*transport);
      same = transport->rank() != 0 || digest == run_threads(1);
    }
    MPI_Finalize();
    return same ? 0 : 1;
  }
#endif
  std::puts("ranks  MB, rank 0  MB sent  digest of the last layer's output");
  const std::uint64_t one = run_threads(1);
  for (int ranks : {2, 3, 4, 8}) same &= run_threads(ranks) == one;
  std::puts(same ? "The same bits at every ring size." : "The bits differ!");
  return same ? 0 : 1;
}
