// Before a ring moves anything its ranks agree on what they are about to do.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "kvring/problem.h"
#include "kvring/ring.h"
#include "kvring/transport.h"

namespace kvring {

// Every parameter that must be the same on all ranks: the problem's fields, the layouts, the schedule, the
// laps.
std::vector<ProblemField> agreement_fields(const Problem& problem, const Layouts& layouts,
                                           const RingOptions& options);

// Collective. `prepare` does what may fail on this rank alone; its error is rethrown here and becomes a
// TransportError on the others. Then all fields are compared: on a mismatch every rank throws TransportError
// naming the field, two ranks and their values. Returns a digest of the fields.
std::uint64_t agree(Transport& transport, const std::function<std::vector<ProblemField>()>& prepare);

}  // namespace kvring
