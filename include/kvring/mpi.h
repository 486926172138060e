// The MPI transport: link kvring::mpi. MPI must be initialised by the caller (MPI_THREAD_FUNNELED or more).
#pragma once

#include <mpi.h>

#include <memory>

#include "kvring/transport.h"

namespace kvring {

// One rank's end of a ring over the ranks of `communicator` (duplicated, so that its messages never meet
// the caller's). Collective. Payloads of any length travel in one ordered stream of messages of at most
// 1 GiB. Every call must come from the thread that made the transport; only fail() may come from another,
// and is then passed on by the next call of the first.
//
// Signs of life: what a rank completes, and its progress(), reset the deadline of every rank, by a small
// message to all others at most every tenth of the deadline.
//
// fail() ends the waits of the other ranks of this communicator; it does not call MPI_Abort. After an error
// a rank stays up to a second to complete what is under way, so that buffers are no longer in use.
//
// The destructor is collective: it waits, up to the deadline, until all ranks have come to theirs. Destroy
// the transport before MPI_Finalize.
//
// Throws InvalidArgument unless MPI is initialised with MPI_THREAD_FUNNELED or more, the communicator is not
// MPI_COMM_NULL and the deadline is above 0 and at most 1e6 s.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator, double deadline_s);

}  // namespace kvring
