// A KV cache over the ranks of a ring: a conversation whose keys and values no single rank could hold.
//
//   KvCache cache({.shape = problem, .layers = 32, .capacity = 1 << 20}, transport);   // on every rank
//   const Turn& turn = cache.begin_turn(tokens);        // who takes which of the new tokens, and how they
//   attend for (int layer = 0; layer < 32; ++layer)
//     cache.attend(layer, q, k, v, out);                // of this rank's new tokens: turn.mine
//
// A turn may be a whole prefill, a chunk of one, a question over a long history, or one token: output and LSE
// have the same bits however the tokens were cut into turns, and over however many ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvring/layout.h"
#include "kvring/problem.h"
#include "kvring/ring.h"
#include "kvring/tensor.h"
#include "kvring/transport.h"

namespace kvring {

struct CacheOptions {
  // Heads, dims, dtypes, batch, mask, scale and tile, the same for all layers. Causal; q_len, kv_len and
  // cu_seqlens are not used.
  Problem shape;
  int layers = 1;
  std::int64_t capacity = 0;  // most tokens that the conversation may have; memory for them is taken at once
  // How every turn attends; none: ring, pass-q or tree, whichever costs least on `machine`.
  std::optional<ScheduleKind> schedule;
  // A name of `kvring plan --machine`, or a file of `kvring plan --calibrate`.
  std::string machine = "cpu-25gbe";
  RingOptions ring;  // threads, heads_per_lap, rank_memory; its schedule is not used
};

struct Turn {
  std::int64_t first = 0;   // position of the first new token
  std::int64_t tokens = 0;  // new tokens of all ranks
  Shard mine;               // those of this rank, counted from `first`; row i of its tensors is position(i)
  ScheduleKind schedule = ScheduleKind::kRing;
  std::string reason;  // why this schedule, in one sentence
};

// One rank's part of the cache: whole tiles of keys and values, packed as the kernel reads them. New tokens
// first fill the last tile; of the rest each rank gets as much, in two chunks (zigzag) where there are enough
// of them, and what is left goes to the ranks that hold least. So shards differ by one tile at most.
//
// Collective calls (constructor, begin_turn, attend) must be made by all ranks of the transport, in the same
// order. Thread safety: one KvCache is used by one thread at a time. After an error of attend() the cache and
// its transport are of no further use; after one of begin_turn() the cache is as it was before.
class KvCache {
 public:
  // Throws InvalidArgument or Unsupported for a shape that cannot be; OutOfBudget where the memory is not
  // there, or is more than ring.rank_memory, naming the bytes. The transport must outlive the cache.
  KvCache(const CacheOptions& options, Transport& transport);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Throws InvalidArgument below 1 token or before all layers have attended the turn before; OutOfBudget
  // beyond the capacity, naming it; TransportError where ranks disagree. The turn stays until the next one
  // begins.
  const Turn& begin_turn(std::int64_t tokens);

  // Takes in the turn's keys and values of one layer and attends over all of that layer's, bottom-right
  // causal: shapes, aliasing and errors as Ring::attend with turn.mine.tokens() queries and keys. Each layer
  // once per turn, in the same order on all ranks.
  void attend(int layer, const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
              const TensorView& out, const LseView& lse = {}, const float* sinks = nullptr);

  std::int64_t tokens() const noexcept;  // of all turns begun
  Shard shard() const;                   // positions that this rank holds, in the order of its rows
  std::int64_t bytes() const noexcept;   // that this rank holds keys and values in
  const RankReport& report() const;      // of the last attend(); throws InvalidArgument before the first turn

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring
