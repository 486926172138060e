#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/message.h"

namespace kvring::cli {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
// Earlier shares are too small to foretell the rest.
constexpr double kLeastShare = 0.01;

std::string duration_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto minutes = static_cast<long>(seconds / 60);
  if (minutes < 60)
    return fmt::format("{} min {:.0f} s", minutes, seconds - 60.0 * static_cast<double>(minutes));
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace

Progress::Progress(std::string label, bool wanted)
    : label_(std::move(label)),
      shown_(wanted && ::isatty(STDERR_FILENO) == 1),
      began_(Clock::now()),
      next_(began_ + kInterval) {}

void Progress::finish() {
  if (drawn_) message("\r\033[K");
  drawn_ = false;
}

void Progress::update(double share) {
  const auto now = Clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kInterval;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - began_).count();
  message("\r\033[K{} {:3.0f} %", label_, share * 100);
  if (share >= kLeastShare) message(", {} left", duration_text(elapsed / share * (1 - share)));
  std::fflush(stderr);
}

}  // namespace kvring::cli
