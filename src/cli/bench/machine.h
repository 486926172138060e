// Where a measurement was made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kvring/tensor.h"
#include "peak/peak.h"

namespace kvring::cli {

using Json = nlohmann::ordered_json;

// Throws InvalidArgument where mpirun started several processes: they would disturb each other's times.
void require_one_process(const char* command);

// Cores that this process may use.
int cores();

// cpu, cores (that this process may use), memory_bytes, isa, compiler.
Json machine_json();
// The same on one line.
std::string machine_text(const Json& machine);

// An array that no cache holds: 1 GiB, or an eighth of the memory where that is less.
std::int64_t uncached_bytes();

// The ceiling of a dtype's arithmetic, "f32_fma" or "bf16_dot": bf16 has its own instruction and, converted,
// float32's, and which is faster differs between processors.
std::string ceiling_name(DType dtype, const Peaks& peaks);
double ceiling_of(const std::string& name, const Peaks& peaks);

// f32_fma_gflops, bf16_dot_gflops and bf16_amx_gflops (null where there is no such instruction),
// read_gbytes_per_s.
Json peak_json(const Peaks& peaks, double read_gbytes_per_s);
std::string peak_text(const Json& peak);

}  // namespace kvring::cli
