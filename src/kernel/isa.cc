#include "kernel/tile.h"
#include "kvring/version.h"

namespace kvring {

std::string isa() { return kernel_isas().front(); }
std::vector<std::string> supported_isas() { return kernel_isas(); }

}  // namespace kvring
