// What `kvring bench kernel` found, as JSON and as a table that grows row by row.
#pragma once

#include <string>

#include "cli/bench/kernel_row.h"
#include "cli/bench/machine.h"

namespace kvring::cli {

Json row_json(const KernelRow& row);
Json ratio_json(const KernelRatio& ratio);

std::string table_head();
std::string row_text(const KernelRow& row);
std::string ratio_text(const KernelRatio& ratio);

}  // namespace kvring::cli
