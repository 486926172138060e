// Who is to blame when a ring has failed.
#pragma once

#include <vector>

#include "kvring/transport.h"
#include "transport/wire/control.h"

namespace kvring::wire {

// What one rank knows when it has stopped and waited for the others' answers.
struct Evidence {
  int rank = 0;
  Clock::time_point now;
  Failure failure;
  Status status;            // this rank's, when it stopped
  std::vector<Peer> peers;  // by rank
};

// In this order: this rank, where others do not answer any more because they had not heard it in time;
// whoever does not answer (this rank itself where nobody does and there are several others; of several the
// one that waited for none of the rest and fell silent first); whoever was not heard in time, although it
// answers now; whoever failed of its own accord; where the failure is a lost patience, a rank that waits for
// nobody.
Verdict find_culprit(const Evidence& evidence);

}  // namespace kvring::wire
