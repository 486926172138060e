// What a rank does, one operation at a time: what Ring::record() and Ring::operations() list, what a trace
// draws and a simulation foretells.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "kvring/transport.h"

namespace kvring {

// What can travel, named by the rank whose tokens it is about. A partial goes back to the rank that owns the
// queries, and may be merged on its way.
enum class Cargo : std::uint8_t {
  kBlock,     // keys and values, packed as the kernel reads them
  kQueries,   // query rows
  kPartials,  // accumulators of queries over some keys
  kRows,      // finished output and LSE
};
inline constexpr Cargo kCargos[] = {Cargo::kBlock, Cargo::kQueries, Cargo::kPartials, Cargo::kRows};
const char* cargo_name(Cargo cargo) noexcept;  // "block", "queries", "partials", "rows"

struct Operation {
  enum class What : std::uint8_t {
    kSend,          // posted until the memory of the parcel may be changed
    kReceive,       // posted until all of the parcel was here
    kAttend,        // queries of one rank, one block or several at once
    kPack,          // what this rank owns, at the start of a lap
    kMerge,         // partials that arrived
    kFinish,        // rows that have met all their keys
    kWaitLate,      // for a parcel, because it was sent later than there was room for it
    kWaitTransfer,  // for a parcel that would not have been there even if sent at once
    kWaitSend,      // for others to let go of a parcel whose memory is needed
  };
  using Clock = std::chrono::steady_clock;  // that of one host; virtual in a simulation

  // (panel of 48 query rows, key tile) pairs of a block, over all heads of the lap.
  struct Tiles {
    std::int64_t full = 0, partial = 0, skipped = 0;
    friend bool operator==(const Tiles&, const Tiles&) = default;
  };

  What what = What::kAttend;
  Cargo cargo = Cargo::kBlock;
  std::int32_t block = 0;     // owner of the parcel; of kAttend, of its first block
  std::int32_t queries = -1;  // of kAttend: their owner, where it is not this rank
  std::uint32_t call = 0, lap = 0;
  std::int32_t step = 0;   // in which the block is attended; by the receiver, if it is sent
  std::int32_t peer = -1;  // the other end of a transfer, or of the one that is waited for; -1: none
  std::int64_t bytes = 0;  // of a transfer
  std::optional<Transport::Request> request{};  // of a transfer of a ring, while it runs
  Clock::time_point posted{};
  // Of a transfer: since when bytes could move, because the sender has the block and, of a receive, because
  // this rank has heard so. May lie before `posted`. Empty: as soon as posted.
  std::optional<Clock::time_point> began{};
  std::optional<Clock::time_point> done{};  // empty: under way
  Tiles tiles{};                            // of kAttend
};

// "send", "receive", "attend", "pack", "merge", "finish", "wait_late", "wait_transfer", "wait_send".
const char* operation_name(Operation::What what) noexcept;

}  // namespace kvring
