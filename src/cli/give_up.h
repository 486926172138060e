// An end for calls that may never return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace kvring::cli {

// Ends the process with `code`, and nothing else of it, if this object still lives after `time`; `last_words`
// is called before, on a thread of its own.
class GiveUp {
 public:
  GiveUp(std::chrono::duration<double> time, int code, std::function<void()> last_words);
  ~GiveUp();
  GiveUp(const GiveUp&) = delete;
  GiveUp& operator=(const GiveUp&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace kvring::cli
