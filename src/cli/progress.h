// One line on the terminal that says how far the work is and when it will be done.
#pragma once

#include <chrono>
#include <string>

namespace kvring::cli {

// Writes to stderr, and only where that is a terminal. Used by one thread.
class Progress {
 public:
  // `label` begins the line; `wanted` is false under --quiet and --json and on ranks other than 0.
  Progress(std::string label, bool wanted);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  // The share done, 0 to 1. Cheap: redraws at most ten times a second.
  void update(double share);
  // Wipes the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool shown_ = false;
  bool drawn_ = false;
  Clock::time_point began_;
  Clock::time_point next_;
};

}  // namespace kvring::cli
