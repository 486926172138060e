#include "cli/launch.h"

#include <array>
#include <cstdlib>

namespace kvring::cli {
namespace {

struct Variables {
  const char* marker;  // set by this launcher alone
  const char* size;
  const char* rank;
};
constexpr std::array<Variables, 3> kLaunchers = {
    {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
     {"PMI_RANK", "PMI_SIZE", "PMI_RANK"},
     {"PMIX_RANK", "SLURM_NTASKS", "PMIX_RANK"}}};

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

}  // namespace

Launch detect_launch() {
  for (const Variables& v : kLaunchers) {
    if (std::getenv(v.marker) == nullptr) continue;
    return {true, number(v.size, 0), number(v.rank, 0), v.marker};
  }
  return {};
}

}  // namespace kvring::cli
