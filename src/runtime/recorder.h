// The recorder: what a rank did last, or all that it did.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvring/operation.h"
#include "kvring/transport.h"

namespace kvring {

// Keeps the last kOperations in memory that it takes once, unless asked to keep all. Thread-safe.
class Recorder {
 public:
  using Id = std::uint64_t;
  static constexpr std::size_t kOperations = 1024;

  // `transport` must outlive it: asked what has become of what is still under way.
  explicit Recorder(const Transport& transport) : transport_(transport), operations_(kOperations) {}

  // From here on nothing is forgotten, and every operation takes memory.
  void keep_all();

  Id begin(const Operation& operation);
  // What is known only at the end.
  struct Ending {
    Operation::Clock::time_point done;
    std::optional<Operation::Clock::time_point> began{};
    Operation::Tiles tiles{};
  };
  void end(Id id, const Ending& ending);  // the first end counts
  // Of a transfer whose end is not known yet.
  void set_began(Id id, Operation::Clock::time_point began);

  std::vector<Operation> operations() const;  // oldest first

 private:
  std::vector<Operation> kept() const;  // with the mutex held
  Operation* find(Id id);               // null: forgotten

  const Transport& transport_;
  mutable std::mutex mutex_;
  Id next_ = 0;
  bool all_ = false;
  Id first_ = 0;                       // if all are kept: the one that lies first
  std::vector<Operation> operations_;  // else by id modulo kOperations
};

// Whose record it is, and why it is asked for.
struct RecordHead {
  int rank = 0;
  int ranks = 1;
  std::string transport;
  std::string reason;  // empty: no failure
  Verdict verdict;
};
std::string host_name();
std::string record_json(const RecordHead& head, const std::vector<Operation>& operations);

}  // namespace kvring
