// A ring of kvring under SimGrid's SMPI: the library's executor, wire protocol and MPI transport, every rank
// an actor of one process. Prints the simulated seconds of one attend() of the slowest rank.
//
//     smpirun -np P ... ring TOKENS_PER_RANK HEADS DIM LAYERS SCHEDULE
#include "kvring/ring.h"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvring/error.h"
#include "kvring/mpi.h"

// SMPI has no matched probes. One thread calls MPI, so nobody takes the message between probe and receive.
namespace {
struct Probed {
  int source, tag;
  MPI_Comm comm;
};
}  // namespace

extern "C" int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                           MPI_Status* status) {
  const int result = MPI_Iprobe(source, tag, comm, flag, status);
  if (result == MPI_SUCCESS && *flag) *message = new Probed{status->MPI_SOURCE, status->MPI_TAG, comm};
  return result;
}

// Under SMPI every rank is one thread, of which it knows nothing.
extern "C" int MPI_Query_thread(int* provided) {
  *provided = MPI_THREAD_FUNNELED;
  return MPI_SUCCESS;
}

extern "C" int MPI_Imrecv(void* buffer, int count, MPI_Datatype type, MPI_Message* message,
                          MPI_Request* request) {
  const auto* probed = static_cast<Probed*>(*message);
  const int result = MPI_Irecv(buffer, count, type, probed->source, probed->tag, probed->comm, request);
  delete probed;
  *message = nullptr;
  return result;
}

namespace {

kvring::ScheduleKind schedule_of(const std::string& name) {
  for (const kvring::ScheduleKind kind : kvring::kSchedules)
    if (name == kvring::schedule_name(kind)) return kind;
  throw kvring::InvalidArgument("no schedule " + name);
}

void attend(std::int64_t tokens, std::int64_t heads, std::int64_t dim, int layers,
            const std::string& schedule) {
  using namespace kvring;
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Problem p;
  p.q_len = p.kv_len = tokens * ranks;
  p.q_heads = p.kv_heads = heads;
  p.head_dim = p.value_dim = dim;
  const Layouts layouts = make_layouts({LayoutKind::kContiguous}, p, ranks);
  const std::int64_t own = layouts.q.shards[static_cast<std::size_t>(rank)].tokens();
  const std::array<std::int64_t, 4> shape = {1, own, heads, dim};
  std::vector<float> input(static_cast<std::size_t>(own * heads * dim), 0.5f), output(input.size());
  std::vector<float> lse(static_cast<std::size_t>(own * heads));
  // Hours of the real clock, by which the transport judges silence.
  const auto transport = make_mpi_transport(MPI_COMM_WORLD, 1e5, MpiProgress::kInline);
  RingOptions options;
  options.threads = 1;
  options.schedule = schedule_of(schedule);
  Ring ring(p, layouts, options, *transport);
  const auto in = dense_view<const void>(input.data(), DType::kF32, shape);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int layer = 0; layer < layers; ++layer)
    ring.attend(in, in, in, dense_view<void>(output.data(), DType::kF32, shape),
                dense_lse_view(lse.data(), {1, heads, own}));
  double seconds = MPI_Wtime() - began, slowest = 0;
  MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("seconds %.9f\n", slowest);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  if (argc != 6) {
    std::fprintf(stderr, "usage: ring TOKENS_PER_RANK HEADS DIM LAYERS SCHEDULE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  try {
    attend(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]), argv[5]);
  } catch (const kvring::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
