// A point in virtual time and the chain of work that led to it.
#pragma once

#include <cstdint>

namespace kvring {

// The chain of computing and transfers that something had to wait for.
struct CriticalPath {
  double compute_s = 0;
  double transfer_s = 0;
  std::int64_t transfers = 0;  // that it passes
  int begins_at = 0;           // rank
  int ends_at = 0;
};

struct Moment {
  double at = 0;
  CriticalPath path;
};
inline const Moment& later(const Moment& a, const Moment& b) { return a.at >= b.at ? a : b; }

}  // namespace kvring
