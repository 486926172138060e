// The table that the kernel is built towards: its cases and what is asked of each.
#include "cli/bench/case.h"

namespace kvring::cli {

std::optional<double> target_fraction(const KernelCase& c) {
  constexpr double kOddShape = 0.75;
  constexpr std::int64_t kMostDecodeQueries = 16;
  if (c.threads > 1 || c.online || c.dtype == DType::kF16) return {};
  const bool bf16 = c.dtype == DType::kBF16;
  const bool usual = c.keys >= 8192 && c.head_dim == c.value_dim && (c.head_dim == 64 || c.head_dim == 128);
  switch (c.mask) {
    case KernelCase::Mask::kFull:
      return !usual ? kOddShape : bf16 ? 0.82 : 0.87;
    case KernelCase::Mask::kCausal:
      return !usual ? kOddShape : bf16 ? 0.79 : 0.84;
    case KernelCase::Mask::kDecode:
      if (c.mask_size > kMostDecodeQueries) return {};
      return 0.85;
    case KernelCase::Mask::kWindow:
      break;
  }
  return {};
}

RatioTarget ratio_target(const KernelCase& c, KernelCase::Suffix suffix) {
  switch (suffix) {
    case KernelCase::Suffix::kThreads:
      return {"speed-up by threads", false, 0.975 * c.threads};
    case KernelCase::Suffix::kOnline:
      return {"time of reproducible / online", true, 1.03};
    case KernelCase::Suffix::kGroup:
      break;
  }
  // No slower; medians of paired runs repeat to within a hundredth.
  return {"speed of grouped / single heads", false, 0.99};
}

std::vector<std::string> default_cases() {
  return {
      "f32-full-d64-n8192",         "f32-full-d64-n32768",         "f32-full-d128-n8192",
      "f32-full-d128-n32768",       "f32-causal-d64-n8192",        "f32-causal-d64-n32768",
      "f32-causal-d128-n8192",      "f32-causal-d128-n32768",      "bf16-full-d64-n8192",
      "bf16-full-d64-n32768",       "bf16-full-d128-n8192",        "bf16-full-d128-n32768",
      "bf16-causal-d64-n8192",      "bf16-causal-d64-n32768",      "bf16-causal-d128-n8192",
      "bf16-causal-d128-n32768",    "f32-full-d64-n8192-online",   "f32-full-d128-n8192-online",
      "bf16-full-d64-n8192-online", "bf16-full-d128-n8192-online", "f32-full-d64-n8192-t2",
      "f32-causal-d64-n8192-t2",    "bf16-causal-d128-n8192-t2",   "f32-full-d128-n8192-gqa4",
      "f32-full-d128-n8192-gqa8",   "bf16-full-d128-n8192-gqa8",   "f32-full-d80-n8192",
      "f32-full-d96-n8192",         "f32-full-d192v128-n8192",     "f32-full-d256-n8192",
      "bf16-full-d96-n8192",        "bf16-full-d256-n8192",        "f32-full-d64-n1000",
      "f32-full-d64-n4097",         "f32-causal-d64-n1000",        "bf16-full-d64-n1000",
      "f16-full-d128-n8192",        "f32-decode1-d128-n131072",    "f32-decode4-d128-n131072",
      "f32-decode16-d128-n131072",  "bf16-decode1-d128-n131072",   "bf16-decode4-d128-n131072",
      "bf16-decode16-d128-n131072",
  };
}

std::vector<std::string> quick_cases() {
  return {"f32-full-d64-n600",      "bf16-causal-d64-n600", "f32-full-d64-n600-online",
          "f32-full-d64-n600-gqa2", "f32-full-d64-n600-t2", "f32-decode4-d64-n4096"};
}

}  // namespace kvring::cli
