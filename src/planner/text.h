// Numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace kvring {

std::string seconds_text(double seconds);      // "1.25 ms"
std::string count_text(std::int64_t count);    // "16,384"
std::string decimal_bytes_text(double bytes);  // "68.4 GB", in powers of ten, as makers of memory count
std::string percent_text(double share);        // "34 %"

}  // namespace kvring
