// A user of the MPI component: one process is a ring of one rank.
#include <kvring/mpi.h>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int size = kvring::make_mpi_transport(MPI_COMM_WORLD, 30)->size();
  MPI_Finalize();
  return size == 1 ? 0 : 1;
}
