// A program of a user: public headers only. Prints the version it was compiled into.
#include <kvring/attend.h>
#include <kvring/error.h>
#include <kvring/layout.h>
#include <kvring/problem.h>
#include <kvring/ring.h>
#include <kvring/tensor.h>
#include <kvring/transport.h>
#include <kvring/version.h>

#include <cstdint>
#include <cstdio>

int main() {
  std::uint16_t half = 0;
  kvring::store_element(&half, kvring::parse_dtype("f16"), 0, 1.5);
  if (kvring::f16_to_float(half) != 1.5F) return 1;
  try {
    kvring::parse_dtype("f12");
    return 1;
  } catch (const kvring::InvalidArgument& error) {
    if (error.code() != kvring::ErrorCode::kInvalidArgument) return 1;
  }
  std::puts(kvring::version());
}
