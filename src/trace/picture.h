// Ranks over time, as a picture.
#pragma once

#include <string>

#include "trace/trace.h"

namespace kvring {

// An SVG image: a row per rank (of more than 64 ranks 64, spread evenly), with what it did when, and at the
// right how its time and its tiles add up.
std::string draw_trace(const Trace& trace);

}  // namespace kvring
