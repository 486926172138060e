// The compute threads of one rank. The caller is one of them, so a pool of 1 starts nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvring {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // throws std::system_error when the system gives no more
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(index, thread) for 0 <= index < count, dealt out one by one in ascending order, with the
  // kernel's floating-point environment; thread 0 is the caller, which also runs `between` after each of its
  // own. Returns when all are done; rethrows the first exception, after which no further index is started.
  using Body = std::function<void(std::int64_t index, int thread)>;
  void run(std::int64_t count, const Body& body, const std::function<void()>& between = {});

 private:
  void stop();
  void worker(int thread);
  void take_work(int thread);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::uint64_t generation_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  const Body* body_ = nullptr;
  const std::function<void()>* between_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

}  // namespace kvring
