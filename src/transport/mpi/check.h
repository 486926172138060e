// Small things around MPI calls.
#pragma once

#include <mpi.h>

#include <memory>

namespace kvring::mpi {

// Throws TransportError "MPI_Isend: <what MPI says>" unless `result` is MPI_SUCCESS.
void check(int result, const char* call);

// While it lives, MPI returns errors instead of ending the program. A communicator of one's own with
// MPI_ERRORS_RETURN is not enough: MPICH 4.0 gives errors that MPI_Test and its kin find to the handler of
// MPI_COMM_WORLD or MPI_COMM_SELF. The caller's handlers come back with the destructor.
class ReturnErrors {
 public:
  ReturnErrors();
  ~ReturnErrors();
  ReturnErrors(const ReturnErrors&) = delete;
  ReturnErrors& operator=(const ReturnErrors&) = delete;

 private:
  MPI_Errhandler world_ = MPI_ERRHANDLER_NULL;
  MPI_Errhandler self_ = MPI_ERRHANDLER_NULL;
};

// Keeps memory that MPI may still touch after an error until the program ends: a request that cannot be
// cancelled would otherwise write into freed memory during MPI_Finalize.
void keep_forever(std::shared_ptr<const void> memory);

}  // namespace kvring::mpi
