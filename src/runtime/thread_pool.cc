#include "runtime/thread_pool.h"

#include <utility>

#include "kernel/tile.h"

namespace kvring {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { worker(t); });
  } catch (...) {  // the system gives no more threads: those that run must end before the error goes on
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::run(std::int64_t count, const Body& body, const std::function<void()>& between) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    between_ = &between;
    count_ = count;
    next_ = 0;
    error_ = nullptr;
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  {
    const FloatEnvironment environment;
    take_work(0);
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::take_work(int thread) {
  try {
    for (std::int64_t i = next_++; i < count_; i = next_++) {
      (*body_)(i, thread);
      if (thread == 0 && *between_) (*between_)();
    }
  } catch (...) {
    next_ = count_;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::worker(int thread) {
  const FloatEnvironment environment;
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    lock.unlock();
    take_work(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace kvring
