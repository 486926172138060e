// An allgather of strings of any lengths, over the wire's allgather of known ones. Lengths and strings are
// checked against their checksums: what ranks agree on must not be what one of them misheard.
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

  // True when something moved. Throws TransportError when what arrives was damaged.
  bool pump(Wire& wire);
  bool done() const noexcept { return done_; }
  std::vector<std::string> take() { return std::move(all_); }  // by rank, once it is done

 private:
  // One allgather and the memory it touches; after an error it may outlive the call.
  struct Round;
  // Of one rank's string, told first.
  struct Announcement {
    std::uint64_t length = 0;
    std::uint64_t checksum = 0;          // of the string
    std::uint64_t lengths_checksum = 0;  // of the two before
  };

  void begin_lengths(Wire& wire);
  void begin_round(Wire& wire);
  void collect();
  void collect_lengths();
  void check_strings() const;

  std::string mine_;
  std::size_t largest_piece_;
  std::vector<Announcement> announced_;  // by rank; empty: not known yet
  std::uint64_t longest_ = 0;
  std::uint64_t begin_ = 0;  // of the next round in every string
  std::shared_ptr<Round> round_;
  Operation operation_;
  bool done_ = false;
  std::vector<std::string> all_;
};

}  // namespace kvring::wire
