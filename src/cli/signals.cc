#include "cli/signals.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kvring/error.h"

namespace kvring::cli {
namespace {

constexpr std::array<int, 8> kSignals = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                         SIGPIPE, SIGXCPU, SIGUSR1, SIGUSR2};
constexpr int kPatienceMs = 2000;

std::atomic<const std::vector<std::string>*> current{nullptr};
std::atomic<int> flag{0};
// Of the Interrupts that live: where the handler tells of the signal, -1 without; and which one came.
std::atomic<int> told_through{-1};
std::atomic<int> interrupt{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int signal : kSignals) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, or started with &
  }
}

void tell_or_end(int signal) {
  TemporaryFiles::remove_all();
  int none = 0;
  if (told_through < 0 || !interrupt.compare_exchange_strong(none, signal)) end_by(signal);
  const int error = errno;
  const char byte = 0;
  if (::write(told_through, &byte, 1) != 1) end_by(signal);
  errno = error;
}

void note(int signal) { flag = signal; }

// The handling that is due when one of these objects has gone.
void handle_what_is_left() { handle(current == nullptr && told_through < 0 ? SIG_DFL : tell_or_end); }

}  // namespace

TemporaryFiles::TemporaryFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {
  current = &paths_;
  handle(tell_or_end);
}

TemporaryFiles::~TemporaryFiles() {
  current = nullptr;
  handle_what_is_left();
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

InterruptFlag::~InterruptFlag() { handle_what_is_left(); }

int InterruptFlag::signal() const noexcept { return flag; }

Interrupts::Interrupts(std::function<void(int)> stop) : stop_(std::move(stop)) {
  if (::pipe(ends_) != 0) throw Internal(fmt::format("no pipe for signals: {}", std::strerror(errno)));
  interrupt = 0;
  thread_ = std::thread([this] { watch(); });
  told_through = ends_[1];
  handle(tell_or_end);
}

Interrupts::~Interrupts() {
  told_through = -1;
  handle_what_is_left();
  ::close(ends_[1]);  // ends the thread
  thread_.join();
  ::close(ends_[0]);
}

void Interrupts::watch() {
  char byte = 0;
  if (::read(ends_[0], &byte, 1) != 1) return;
  stop_(interrupt);
  pollfd closed{ends_[0], POLLIN, 0};
  if (::poll(&closed, 1, kPatienceMs) != 0) return;
  TemporaryFiles::remove_all();
  end_by(interrupt);
}

int Interrupts::signal() const noexcept { return interrupt; }

std::string signal_text(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return fmt::format("signal {}", signal);
  }
}

void end_by(int signal) noexcept {
  ::signal(signal, SIG_DFL);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace kvring::cli
