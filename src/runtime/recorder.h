// The flight recorder: what a rank did last.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvring/transport.h"

namespace kvring {

struct Operation {
  enum class What : std::uint8_t { kSend, kReceive, kAttend };
  using Clock = std::chrono::steady_clock;

  What what = What::kAttend;
  std::int32_t block = 0;  // its owner
  std::uint32_t call = 0, lap = 0;
  std::int32_t step = 0;  // in which the block is attended; by the receiver, if it is sent
  std::int32_t peer = -1;
  std::int64_t bytes = 0;
  std::optional<Transport::Request> request{};  // of a transfer
  Clock::time_point posted{};
  std::optional<Clock::time_point> done{};
};
const char* operation_name(Operation::What what) noexcept;  // "send", "receive", "attend"

// Keeps the last kOperations. Thread-safe.
class Recorder {
 public:
  using Id = std::uint64_t;
  static constexpr std::size_t kOperations = 1024;

  // `transport` must outlive it: asked what has become of what is still under way.
  explicit Recorder(const Transport& transport) : transport_(transport) {}

  Id begin(Operation operation);                                                 // posted now
  void end(Id id, Operation::Clock::time_point when = Operation::Clock::now());  // the first end counts

  std::vector<Operation> operations() const;  // oldest first

 private:
  const Transport& transport_;
  mutable std::mutex mutex_;
  Id next_ = 0;
  std::array<Operation, kOperations> operations_;
};

// Whose record it is, and why it is asked for.
struct RecordHead {
  int rank = 0;
  int ranks = 1;
  std::string transport;
  std::string reason;  // empty: no failure
  Verdict verdict;
};
std::string record_json(const RecordHead& head, const std::vector<Operation>& operations);

}  // namespace kvring
