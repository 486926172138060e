// One row of `kvring bench kernel`: what its name says, and what is asked of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvring/problem.h"

namespace kvring::cli {

// DTYPE-MASK-d<dim>[v<value dim>]-n<keys>, and any of -gqa<heads>, -online, -t<threads>, each once.
// MASK is full, causal, decode<queries> (the last queries of the sequence, causal) or window<width> (each
// query sees itself and the keys before it, width in all).
struct KernelCase {
  enum class Mask { kFull, kCausal, kDecode, kWindow };
  // What a case may have beside its base, and the order in which its name says so.
  enum class Suffix { kGroup, kOnline, kThreads };

  DType dtype = DType::kF32;
  Mask mask = Mask::kFull;
  std::int64_t mask_size = 0;  // queries of decode, width of window
  std::int64_t head_dim = 0, value_dim = 0, keys = 0;
  std::int64_t group = 1;  // query heads on a KV head
  bool online = false;
  int threads = 1;

  friend bool operator==(const KernelCase&, const KernelCase&) = default;
};

// A name without -t gets `threads`. Throws InvalidArgument naming the part that is wrong and an example.
KernelCase parse_case(std::string_view name, int threads);
std::string case_name(const KernelCase& c);
std::string mask_name(const KernelCase& c);  // "full", "causal", "decode4", "window4096"

// The attention that is measured. A decode case with more KV heads reads more memory.
Problem case_problem(const KernelCase& c, std::int64_t kv_heads);

// Operations that attention needs: two for each visible (query, key) pair and dim, of K and of V, over all
// heads.
double needed_flops(const Problem& problem);
// Bytes of K and V.
double kv_bytes(const Problem& problem);

// The last suffix of the name, and the case without it, against which it is held.
std::optional<KernelCase::Suffix> last_suffix(const KernelCase& c);
KernelCase without(KernelCase c, KernelCase::Suffix suffix);

// The least fraction of the ceiling that is asked of a case; none is asked of what the table does not list.
std::optional<double> target_fraction(const KernelCase& c);

// What two cases are compared by, and what is asked.
struct RatioTarget {
  const char* what;  // "time against online", ...
  bool at_most;      // else at least
  double limit;
};
RatioTarget ratio_target(const KernelCase& c, KernelCase::Suffix suffix);

// The table, and a few small cases that only show that everything works.
std::vector<std::string> default_cases();
std::vector<std::string> quick_cases();

}  // namespace kvring::cli
