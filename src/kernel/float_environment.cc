#include <cfenv>
#include <cstring>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernel/tile.h"

namespace kvring {

static_assert(sizeof(std::fenv_t) <= 60);

FloatEnvironment::FloatEnvironment() noexcept {
  std::fenv_t saved;
  std::fegetenv(&saved);
  std::memcpy(saved_, &saved, sizeof saved);
  std::fesetenv(FE_DFL_ENV);
#if defined(__SSE__)
  // Not every C library clears flush-to-zero and denormals-are-zero with the default environment.
  _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
}

FloatEnvironment::~FloatEnvironment() {
  std::fenv_t saved;
  std::memcpy(&saved, saved_, sizeof saved);
  std::fesetenv(&saved);
}

}  // namespace kvring
