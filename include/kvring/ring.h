// The ring: made once per problem and set of ranks, used for every layer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvring/layout.h"
#include "kvring/operation.h"
#include "kvring/problem.h"
#include "kvring/tensor.h"
#include "kvring/transport.h"

namespace kvring {

// What moves when. All are exact and give the same bits; which is fastest depends on what is longer, the
// queries or the keys, and on the network: `kvring plan` says. docs/schedules.md describes them.
enum class ScheduleKind : std::uint8_t {
  kRing,       // blocks of keys and values ride the ring, queries stay
  kAllGather,  // every block goes to all ranks at once
  kPassQ,      // queries ride the ring, keys and values stay, partials go home
  kUlysses,    // tokens are exchanged for heads, each rank attends whole sequences of its heads
  kTree,       // queries go to all ranks, keys and values stay, partials are reduced along a tree
};
inline constexpr ScheduleKind kSchedules[] = {ScheduleKind::kRing, ScheduleKind::kAllGather,
                                              ScheduleKind::kPassQ, ScheduleKind::kUlysses,
                                              ScheduleKind::kTree};
// "ring", "all-gather", "pass-q", "ulysses", "tree"
const char* schedule_name(ScheduleKind kind) noexcept;

// Who owns what on both sides. For self attention the two are usually the same.
struct Layouts {
  Layout q;
  Layout kv;
};
// Both sides cut by the same rule, each with its own length and documents.
Layouts make_layouts(const LayoutSpec& spec, const Problem& problem, int ranks);

struct RingOptions {
  ScheduleKind schedule = ScheduleKind::kRing;
  // KV heads (of all batch entries, b * kv_heads + h) that one lap carries; 0 picks as few as keep a
  // message at a megabyte or more, fewer where rank_memory asks for it. Of schedule ulysses, which shares
  // them out, a multiple of the ranks.
  std::int64_t heads_per_lap = 0;
  int threads = 0;  // compute threads of this rank, the caller included; 0 is the cores divided by the ranks
                    // of this process
  // Bytes this rank may hold, the caller's tensors included; 0 is no limit. Making a ring that would
  // not fit throws OutOfBudget with the number of ranks that would.
  std::int64_t rank_memory = 0;
};

// What one attend() did on this rank. Times are wall seconds.
struct RankReport {
  int rank = 0;
  std::int64_t tokens = 0;  // queries owned
  double compute_s = 0;
  double transfer_s = 0;          // parcels on their way to this rank, each from when this rank heard of it
  double exposed_wait_s = 0;      // waiting with nothing to compute; the sum of the three below
  double exposed_late_s = 0;      // ... for what another rank sent later than there was room for it here
  double exposed_transfer_s = 0;  // ... for what would not have been there even if sent at once
  double exposed_send_s = 0;      // ... for another rank to take what lies in memory that was needed
  std::int64_t bytes_sent = 0;    // payload bytes handed to other ranks, also where only a pointer moves
  std::int64_t hops = 0;          // parcels handed to other ranks, over all laps
  // (block of 48 query rows, key tile) pairs, over all heads; their ratio between ranks is the ratio of work.
  std::int64_t tiles_full = 0;
  std::int64_t tiles_partial = 0;
  std::int64_t tiles_skipped = 0;
  std::vector<std::pair<std::string, std::int64_t>> ledger_bytes;  // every buffer by name
  std::int64_t peak_bytes = 0;                                     // the most that was held at once
};

// One rank's member of a ring. Collective calls (constructor, attend) must be made by all ranks of the
// transport, in the same order. Thread safety: one Ring is used by one thread at a time.
class Ring {
 public:
  // Agrees on the problem with all ranks (TransportError on every rank, naming the field and two ranks, if
  // they differ), plans the steps and takes the workspace. The transport must outlive the ring. An error of
  // one rank is a TransportError on the others; no block has moved by then, and the transport stays usable.
  Ring(const Problem& problem, const Layouts& layouts, const RingOptions& options, Transport& transport);
  // Waits until no other rank reads this one's blocks, which is when the others have attended them in the
  // attend() calls that this rank has made; at most for the transport's deadline.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // q (batch, q tokens of this rank, q_heads, head_dim), k and v (batch, kv tokens of this rank, kv_heads,
  // head_dim / value_dim), out (batch, q tokens, q_heads, value_dim), lse optional (null data: not
  // wanted), sinks: q_heads float32 natural-log logits, or null. out and lse must not overlap the inputs.
  // Exchanges blocks only: no barrier and no allocation.
  //
  // An error of one rank, also what its progress callback throws, ends the call on all ranks in bounded time:
  // TransportError on the others, in this call or the next. The ring and its transport are of no further use.
  void attend(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
              const TensorView& out, const LseView& lse = {}, const float* sinks = nullptr);

  // Called by attend() now and then on the calling thread with the share of this rank's work done, 0 to 1.
  void set_progress(std::function<void(double)> progress);

  // Of the last attend().
  const RankReport& report() const;
  // What this rank did last, as JSON, for whoever looks for the reason of a failure: {schema_version, rank,
  // ranks, host, transport, reason, culprit, verdict, silent, epoch_s, operations: [{what, block, call, lap,
  // step, peer, bytes, posted_s, done_s}]}. `reason` is the caller's: why the record is taken. The operations
  // are those of operations(); done_s is null while one is under way; times are seconds after epoch_s, which
  // counts from 1970. `kvring diagnose` reads it. Any thread.
  std::string record(const std::string& reason = {}) const;
  // What this rank did, oldest first: the last 1,024 operations of all calls. Any thread.
  std::vector<Operation> operations() const;
  // From here on all operations are kept, about 150 bytes each, and attend() allocates for them.
  void keep_all_operations();
  // True when output bits do not depend on ranks, layout, schedule, transport or threads.
  bool bits_invariant() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring
