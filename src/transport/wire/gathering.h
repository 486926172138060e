// An allgather of strings of any lengths, over the wire's allgather of known ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/wire/wire.h"

namespace kvring::wire {

class Gathering {
 public:
  // Travels in rounds in which all ranks together send at most `largest_piece` bytes, or one byte each.
  Gathering(std::string mine, int ranks, std::size_t largest_piece);

  bool pump(Wire& wire);  // true when something moved
  bool done() const noexcept { return done_; }
  std::vector<std::string> take() { return std::move(all_); }  // by rank, once it is done

 private:
  // One allgather and the memory it touches; after an error it may outlive the call.
  struct Round;

  void begin_lengths(Wire& wire);
  void begin_round(Wire& wire);
  void collect();

  std::string mine_;
  std::size_t largest_piece_;
  std::vector<std::uint64_t> lengths_;  // empty: not known yet
  std::uint64_t longest_ = 0;
  std::uint64_t begin_ = 0;  // of the next round in every string
  std::shared_ptr<Round> round_;
  Operation operation_;
  bool done_ = false;
  std::vector<std::string> all_;
};

}  // namespace kvring::wire
