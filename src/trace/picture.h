// Ranks over time, as a picture.
#pragma once

#include <string>

#include "trace/trace.h"

namespace kvring {

// An SVG image: a row per rank (of more than 64 ranks 64, spread evenly), with what it did when, and at the
// right how its time and its tiles add up. The axis covers the run and at least `span_s` seconds, so that
// pictures of different runs can have the same scale.
std::string draw_trace(const Trace& trace, double span_s = 0);

}  // namespace kvring
