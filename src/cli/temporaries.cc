#include "cli/temporaries.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace kvring::cli {
namespace {

constexpr std::array<int, 8> kSignals = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                         SIGPIPE, SIGXCPU, SIGUSR1, SIGUSR2};

std::atomic<const std::vector<std::string>*> current{nullptr};
std::atomic<int> flag{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  for (int signal : kSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, or started with &
  }
}

void remove_and_end(int signal) {
  TemporaryFiles::remove_all();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void note(int signal) { flag = signal; }

}  // namespace

TemporaryFiles::TemporaryFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {
  current = &paths_;
  handle(remove_and_end);
}

TemporaryFiles::~TemporaryFiles() {
  handle(SIG_DFL);
  current = nullptr;
}

void TemporaryFiles::remove_all() noexcept {
  const std::vector<std::string>* paths = current;
  if (paths == nullptr) return;
  for (const std::string& path : *paths) ::unlink(path.c_str());
}

InterruptFlag::InterruptFlag() {
  flag = 0;
  handle(note);
}

InterruptFlag::~InterruptFlag() {
  if (current == nullptr) handle(SIG_DFL);
}

int InterruptFlag::signal() const noexcept { return flag; }

}  // namespace kvring::cli
