#include "cli/give_up.h"

#include <cstdlib>
#include <utility>

namespace kvring::cli {

GiveUp::GiveUp(std::chrono::duration<double> time, int code, std::function<void()> last_words)
    : thread_([this, time, code, last_words = std::move(last_words)] {
        std::unique_lock lock(mutex_);
        if (over_.wait_for(lock, time, [this] { return is_over_; })) return;
        last_words();
        std::_Exit(code);
      }) {}

GiveUp::~GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

}  // namespace kvring::cli
