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
#include <vector>

// A query with one key gets that key's value; two ranks, so that something moves.
bool attends() {
  kvring::Problem problem;
  problem.q_len = problem.kv_len = 2;
  problem.head_dim = problem.value_dim = 2;
  problem.tile = 1;
  problem.causal = true;
  std::vector<float> q = {1, 2, 3, 4};
  std::vector<float> v = {5, 6, 7, 8};
  std::vector<float> out(4, -1);
  kvring::AttendOptions options;
  options.ranks = 2;
  const auto in = [](std::vector<float>& data) {
    return kvring::as_const(kvring::dense_view<void>(data.data(), kvring::DType::kF32, {1, 2, 1, 2}));
  };
  kvring::attend(problem, options, in(q), in(q), in(v),
                 kvring::dense_view<void>(out.data(), kvring::DType::kF32, {1, 2, 1, 2}));
  return out[0] == 5 && out[1] == 6 && out[2] > 5 && out[2] < 7;
}

int main() {
  if (!attends()) return 1;
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
