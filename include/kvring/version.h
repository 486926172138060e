#pragma once

#include <string>
#include <vector>

namespace kvring {

const char* version() noexcept;  // "0.1.0"

// The instruction set the kernels run on here, e.g. "AVX3", and all that are compiled in and supported here.
std::string isa();
std::vector<std::string> supported_isas();

}  // namespace kvring
