// The MPI transport: link kvring::mpi. MPI must be initialised by the caller, best with MPI_THREAD_MULTIPLE.
#pragma once

#include <mpi.h>

#include <memory>

#include "kvring/transport.h"

namespace kvring {

// Who calls MPI. MPI moves a large message only within calls, so transfers hide behind computation only as
// far as somebody calls it meanwhile.
enum class MpiProgress {
  kAuto,    // kThread if MPI was initialised with MPI_THREAD_MULTIPLE, otherwise kInline
  kThread,  // a thread of the transport's own, which sleeps between calls; with MPI_THREAD_SERIALIZED the
            // caller must not call MPI between making the transport and destroying it
  kInline,  // the thread that uses the transport, within its calls: MPI_THREAD_FUNNELED is enough
};

// One rank's end of a ring over the ranks of `communicator` (duplicated, so that its messages never meet
// the caller's). Collective. Payloads of any length travel in one ordered stream of messages of at most
// 1 GiB. Inline, every call must come from the thread that made the transport; only fail() may come from
// another, and is then passed on by the next call of the first.
//
// Signs of life: each rank tells all others every tenth of the deadline, by a small message, that it is there
// and how far it is. Progress of any rank resets the deadline of all waits; a rank from which nothing came
// for a whole deadline ends the ring.
//
// fail() ends the waits of the other ranks of this communicator; it does not call MPI_Abort. After an error
// a rank stays up to half a second to complete what is under way, so that buffers are no longer in use, and
// to see who still answers: verdict() names whoever does not.
//
// The destructor is collective: it waits, up to the deadline, until all ranks have come to theirs. Destroy
// the transport before MPI_Finalize.
//
// Throws InvalidArgument unless MPI is initialised with MPI_THREAD_FUNNELED or more (SERIALIZED for kThread),
// the communicator is not MPI_COMM_NULL and the deadline is above 0 and at most 1e6 s.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator, double deadline_s,
                                              MpiProgress progress = MpiProgress::kAuto);

}  // namespace kvring
