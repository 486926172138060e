# kvring_mpi_test(NAME RANKS n COMMAND target [argument...] [ENVIRONMENT name=value...]): a ctest test that
# runs the program under the mpirun of the MPI it was built with, on this machine only.
include(CheckCXXSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
check_cxx_symbol_exists(OPEN_MPI mpi.h KVRING_OPEN_MPI)
unset(CMAKE_REQUIRED_LIBRARIES)

# Where both MPIs are installed, `mpirun` is that of one of them, and MPIEXEC_EXECUTABLE may be the other's.
if(KVRING_OPEN_MPI)
  find_program(KVRING_MPIRUN NAMES mpirun.openmpi mpirun mpiexec)
else()
  find_program(KVRING_MPIRUN NAMES mpirun.mpich mpirun.hydra mpirun mpiexec)
endif()

function(kvring_mpi_test name)
  cmake_parse_arguments(ARG "" "RANKS" "COMMAND;ENVIRONMENT" ${ARGN})
  if(KVRING_SANITIZE MATCHES "thread")
    return() # MPI libraries have threads and locks of their own that the sanitizer does not see
  endif()
  if(KVRING_OPEN_MPI)
    set(flags --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader)
  endif()
  list(POP_FRONT ARG_COMMAND program)
  add_test(NAME ${name} COMMAND ${KVRING_MPIRUN} ${flags} -n ${ARG_RANKS} $<TARGET_FILE:${program}> ${ARG_COMMAND})
  # MPI libraries keep memory until the process ends.
  set_tests_properties(
    ${name}
    PROPERTIES ENVIRONMENT
               "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;ASAN_OPTIONS=detect_leaks=0;${ARG_ENVIRONMENT}"
               PROCESSORS ${ARG_RANKS} TIMEOUT 120)
endfunction()
