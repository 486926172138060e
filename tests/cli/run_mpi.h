// Runs the built program under mpirun.
#pragma once

#include <string>
#include <vector>

#include "run_kvring.h"

namespace kvring::cli {

class Mpi : public KvringTest {
 protected:
  struct Part {
    const char* ranks;
    std::vector<std::string> arguments;
  };

  // Ranks that are not all given the same.
  static std::vector<std::string> mpirun(const std::vector<Part>& parts) {
    std::vector<std::string> command = {KVRING_MPIRUN};
#ifdef KVRING_OPEN_MPI
    for (const char* word :
         {"--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"})
      command.push_back(word);
#endif
    for (const Part& part : parts) {
      if (&part != &parts.front()) command.push_back(":");
      for (const char* word : {"-n", part.ranks, KVRING_PROGRAM}) command.push_back(word);
      command.insert(command.end(), part.arguments.begin(), part.arguments.end());
    }
    return command;
  }
  static std::vector<std::string> mpirun(const char* ranks, const std::vector<std::string>& arguments) {
    return mpirun({{ranks, arguments}});
  }

  // How often the program itself spoke: mpirun adds its own words when a rank fails.
  static int messages(const RunResult& result) {
    int count = 0;
    for (std::size_t at = result.err.find("kvring: "); at != std::string::npos;
         at = result.err.find("kvring: ", at + 1))
      count += at == 0 || result.err[at - 1] == '\n';
    return count;
  }
};

}  // namespace kvring::cli
