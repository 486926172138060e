#include "kvring/mpi.h"

#include <fmt/format.h>

#include "kvring/error.h"
#include "transport/mpi/mpi_wire.h"
#include "transport/wire/wire_transport.h"

namespace kvring {
namespace {

void require_mpi(MPI_Comm communicator) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized)
    throw InvalidArgument("the MPI transport needs MPI: call MPI_Init_thread first, MPI_Finalize last");
  if (communicator == MPI_COMM_NULL)
    throw InvalidArgument("MPI_COMM_NULL has no ranks: give a communicator such as MPI_COMM_WORLD");
}

// Whether a thread of the transport's own may call MPI.
bool wants_thread(MpiProgress progress) {
  int provided = MPI_THREAD_SINGLE;
  mpi::check(MPI_Query_thread(&provided), "MPI_Query_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw InvalidArgument(
        "MPI was initialised with MPI_THREAD_SINGLE, but a rank computes with threads: call MPI_Init_thread "
        "with MPI_THREAD_MULTIPLE");
  if (progress == MpiProgress::kThread && provided < MPI_THREAD_SERIALIZED)
    throw InvalidArgument(
        "MPI was initialised with MPI_THREAD_FUNNELED, which allows no thread for communication: call "
        "MPI_Init_thread with MPI_THREAD_MULTIPLE, or ask for inline progress");
  if (progress == MpiProgress::kAuto) return provided >= MPI_THREAD_MULTIPLE;
  return progress == MpiProgress::kThread;
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator, double deadline_s,
                                              MpiProgress progress) {
  const ProgressClock checks_the_deadline(deadline_s, ProgressClock::Clock::now());
  require_mpi(communicator);
  const bool thread = wants_thread(progress);
  return std::make_unique<wire::WireTransport>(std::make_unique<mpi::MpiWire>(communicator),
                                               wire::WireOptions{.deadline_s = deadline_s, .thread = thread});
}

}  // namespace kvring
