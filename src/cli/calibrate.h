// Measures this machine and the transport of its ranks, for `kvring plan --machine FILE`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "cli/team.h"

namespace kvring::cli {

// A machine in the format of the catalogue: what attention reaches on each rank while all compute, and what a
// shift of blocks around the ring takes while all send (machine_profile.h). Nothing on processes without rank
// 0.
std::optional<nlohmann::ordered_json> calibrate(Team& team);

}  // namespace kvring::cli
