// Whether mpirun (or srun) started this process, as the environment tells before MPI is initialised.
#pragma once

#include <string>

namespace kvring::cli {

struct Launch {
  bool launched = false;
  int size = 1;  // 0: not told
  int rank = 0;
  std::string by;  // the variable that says so
};

// Open MPI's mpirun, MPICH's (also through PMI-1 and PMI-2 of Slurm) and srun with PMIx.
Launch detect_launch();

}  // namespace kvring::cli
