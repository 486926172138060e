#include "transport/mpi/check.h"

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kvring/error.h"

namespace kvring::mpi {

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(result, text, &length) != MPI_SUCCESS) length = 0;
  throw TransportError(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

ReturnErrors::ReturnErrors() {
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &world_);
  MPI_Comm_get_errhandler(MPI_COMM_SELF, &self_);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

ReturnErrors::~ReturnErrors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, world_);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, self_);
  MPI_Errhandler_free(&world_);
  MPI_Errhandler_free(&self_);
}

void keep_forever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  static std::vector<std::shared_ptr<const void>> kept;
  const std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace kvring::mpi
