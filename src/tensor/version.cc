#include "kvring/version.h"

namespace kvring {

const char* version() noexcept { return KVRING_VERSION; }

}  // namespace kvring
