#include "cli/bench/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/cores.h"
#include "cli/launch.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "kvring/version.h"

namespace kvring::cli {
namespace {

// The first line of the kind "model name : X", which x86 has; other machines are named by their architecture.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
#if defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

std::int64_t memory_bytes() {
  return std::int64_t{::sysconf(_SC_PHYS_PAGES)} * std::int64_t{::sysconf(_SC_PAGESIZE)};
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string gflops_text(const Json& peak, const char* key) {
  return peak[key].is_null() ? "none" : fmt::format("{:.1f}", peak[key].get<double>());
}

}  // namespace

void require_one_process(const char* command) {
  const Launch launch = detect_launch();
  if (launch.size > 1)
    throw InvalidArgument(fmt::format("{} measures one process, but {} were started ({}); start one", command,
                                      launch.size, launch.by));
}

int cores() {
  const cpu_set_t set = allowed_cores();
  return CPU_COUNT(&set);
}

Json machine_json() {
  return {{"cpu", cpu_name()},
          {"cores", cores()},
          {"memory_bytes", memory_bytes()},
          {"isa", isa()},
          {"compiler", compiler()}};
}

std::string machine_text(const Json& m) {
  return fmt::format("{}, {} cores, {}, {}, {}, kvring {}", m["cpu"].get<std::string>(),
                     m["cores"].get<int>(), bytes_text(m["memory_bytes"].get<double>()),
                     m["isa"].get<std::string>(), m["compiler"].get<std::string>(), version());
}

std::int64_t uncached_bytes() {
  constexpr std::int64_t kEnough = std::int64_t{1} << 30;
  constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
  return std::max(kHugePage, std::min(kEnough, memory_bytes() / 8) / kHugePage * kHugePage);
}

std::string ceiling_name(DType dtype, const Peaks& peaks) {
  const bool dot = dtype == DType::kBF16 && peaks.bf16_dot_gflops.value_or(0) > peaks.f32_fma_gflops;
  return dot ? "bf16_dot" : "f32_fma";
}

double ceiling_of(const std::string& name, const Peaks& peaks) {
  return name == "bf16_dot" ? *peaks.bf16_dot_gflops : peaks.f32_fma_gflops;
}

Json peak_json(const Peaks& peaks, double read_gbytes_per_s) {
  return {{"f32_fma_gflops", peaks.f32_fma_gflops},
          {"bf16_dot_gflops", or_null(peaks.bf16_dot_gflops)},
          {"bf16_amx_gflops", or_null(peaks.bf16_amx_gflops)},
          {"read_gbytes_per_s", read_gbytes_per_s}};
}

std::string peak_text(const Json& peak) {
  return fmt::format("one thread: f32 FMA {} GFLOP/s, bf16 dot {}, AMX {}, reads {:.1f} GB/s\n",
                     gflops_text(peak, "f32_fma_gflops"), gflops_text(peak, "bf16_dot_gflops"),
                     gflops_text(peak, "bf16_amx_gflops"), peak["read_gbytes_per_s"].get<double>());
}

}  // namespace kvring::cli
