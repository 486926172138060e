// Writes a trace as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show. The
// format is described in docs/tracing.md.
#pragma once

#include <functional>
#include <string_view>

#include "trace/trace.h"

namespace kvring {

// Calls `sink` with the text, piece by piece.
void write_trace(const Trace& trace, const std::function<void(std::string_view)>& sink);

}  // namespace kvring
