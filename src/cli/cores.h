// The cores this process may run on.
#pragma once

#include <sched.h>

namespace kvring::cli {

inline cpu_set_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Machines with more cores than the set holds make it fail; then every core that fits counts as allowed.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
  }
  return set;
}

}  // namespace kvring::cli
