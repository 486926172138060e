// The MPI transport: link kvring::mpi. MPI must be initialised by the caller (MPI_THREAD_FUNNELED or more).
#pragma once

#include <mpi.h>

#include <memory>

#include "kvring/transport.h"

namespace kvring {

// One rank's end of a ring over the ranks of `communicator` (duplicated, so that its messages never meet
// the caller's). Collective. Payloads of any length travel in one ordered stream of messages of at most
// 1 GiB. fail() ends the waits of the other ranks of this communicator; it does not call MPI_Abort.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator, double deadline_s);

}  // namespace kvring
