// What is left to clean up when the process is told to end: temporary files, which no destructor removes once
// a signal or MPI_Abort has ended the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace kvring::cli {

// While one lives, the signals that ask a process to end, unless they are ignored, remove the files before
// they end it. One at a time.
class TemporaryFiles {
 public:
  explicit TemporaryFiles(std::vector<std::string> paths);
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;
  ~TemporaryFiles();

  // Removes the files of the one that lives, if any. Async-signal-safe.
  static void remove_all() noexcept;

 private:
  std::vector<std::string> paths_;
};

// While one lives, the same signals only set a flag, for work that cleans up after itself, or until there are
// TemporaryFiles, whose handling then stays.
class InterruptFlag {
 public:
  InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  ~InterruptFlag();

  // The signal that came, or 0.
  int signal() const noexcept;
};

}  // namespace kvring::cli
