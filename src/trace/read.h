// Reads what write_trace() wrote.
#pragma once

#include <string>

#include "trace/trace.h"

namespace kvring {

// Throws InputFile, naming the file and what is wrong with it, unless it holds a trace of this schema. What
// other programs added to it is ignored: events that are not complete ones ("X"), and keys.
Trace read_trace(const std::string& path);

}  // namespace kvring
