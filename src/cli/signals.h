// What is to be done when the process is told to end: temporary files go at once, which no destructor removes
// once a signal or MPI_Abort has ended the process; and the ranks are told, who end by themselves.
#pragma once

#include <functional>
#include <string>
#include <thread>
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

// While one lives, the first of these signals removes the files and has `stop` called, on a thread of its
// own, to end the work in an orderly way. The second one, or two seconds, end the process. One at a time.
class Interrupts {
 public:
  explicit Interrupts(std::function<void(int signal)> stop);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  // The signal that came, or 0.
  int signal() const noexcept;

 private:
  void watch();

  std::function<void(int)> stop_;
  int ends_[2];  // of the pipe through which the handler wakes the thread
  std::thread thread_;
};

std::string signal_text(int signal);  // "SIGTERM"
// Ends the process as the signal does by default.
[[noreturn]] void end_by(int signal) noexcept;

}  // namespace kvring::cli
