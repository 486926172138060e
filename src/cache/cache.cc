#include "kvring/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "cache/placing.h"
#include "cache/storage.h"
#include "kvring/error.h"
#include "planner/choose_turn.h"
#include "runtime/failure.h"
#include "runtime/member.h"

namespace kvring {
namespace {

const CacheOptions& checked(const CacheOptions& o) {
  if (!o.shape.causal)
    throw Unsupported("a KV cache is of causal attention; set shape.causal, or use Ring for other masks");
  if (!o.shape.cu_seqlens_q.empty() || !o.shape.cu_seqlens_kv.empty())
    throw Unsupported("a KV cache holds one conversation per batch entry; use one cache for each document");
  if (o.layers < 1) throw InvalidArgument(fmt::format("layers is {}; it must be 1 or more", o.layers));
  if (o.capacity < 1)
    throw InvalidArgument(
        fmt::format("capacity is {} tokens; it must be as long as the conversation may get", o.capacity));
  Problem longest = o.shape;
  longest.q_len = longest.kv_len = o.capacity;
  validate(longest);
  return o;
}

// Whole tiles at the same places for all turns: nothing of it depends on how long the sequence is.
Problem turn_problem(const Problem& shape, std::int64_t tokens, std::int64_t all) {
  Problem p = shape;
  p.q_len = tokens;
  p.kv_len = all;
  return p;
}

}  // namespace

struct KvCache::Impl {
  Impl(const CacheOptions& o, Transport& t)
      : options(checked(o)),
        transport(t),
        machine(find_machine(o.machine)),
        per_node(ranks_per_node(t)),
        placing(t.size(), o.shape.tile),
        rows(most_rows(o.capacity, t.size(), o.shape.tile)),
        bytes(o.layers * LayerStorage::bytes(o.shape, rows)) {
    if (o.ring.rank_memory > 0 && bytes > o.ring.rank_memory)
      throw OutOfBudget(
          fmt::format("the cache of {} tokens would take {} bytes on each of {} ranks, more than the limit "
                      "of {}; more ranks "
                      "or a smaller capacity would take less",
                      o.capacity, bytes, t.size(), o.ring.rank_memory));
    try {
      for (int layer = 0; layer < o.layers; ++layer) storage.emplace_back(o.shape, rows);
    } catch (const std::bad_alloc&) {
      throw OutOfBudget(fmt::format("this machine has not the {} bytes that the cache of {} tokens takes",
                                    bytes, o.capacity));
    }
    attended.assign(static_cast<std::size_t>(o.layers), true);
  }

  // The fewest ranks of this ring that any host has; all ranks know the same.
  static int ranks_per_node(Transport& transport) {
    int fewest = transport.size();
    for (const std::string& text :
         transport.allgather(fmt::format("{}", transport.ranks_on_this_host()), "the hosts of ranks"))
      fewest = std::min(fewest, std::stoi(text));
    return fewest;
  }

  CacheOptions options;
  Transport& transport;
  Machine machine;
  int per_node;
  Placing placing;
  std::int64_t rows;   // most that this rank holds
  std::int64_t bytes;  // of all layers
  std::vector<LayerStorage> storage;
  std::vector<bool> attended;  // by layer, of this turn
  Turn turn;
  std::optional<RingMember> ring;  // of this turn
};

KvCache::KvCache(const CacheOptions& options, Transport& transport)
    : impl_(std::make_unique<Impl>(options, transport)) {}
KvCache::~KvCache() = default;

const Turn& KvCache::begin_turn(std::int64_t tokens) {
  Impl& c = *impl_;
  if (tokens < 1) throw InvalidArgument(fmt::format("a turn of {} tokens; it must have 1 or more", tokens));
  const auto missing = std::find(c.attended.begin(), c.attended.end(), false);
  if (missing != c.attended.end())
    throw InvalidArgument(fmt::format("layer {} has not attended the turn of {} tokens before",
                                      missing - c.attended.begin(), c.turn.tokens));
  if (tokens > c.options.capacity - c.placing.tokens())
    throw OutOfBudget(fmt::format("a turn of {} tokens after {} is beyond the capacity of {}", tokens,
                                  c.placing.tokens(), c.options.capacity));
  Placing placing = c.placing;
  Turn turn;
  turn.first = placing.tokens();
  turn.tokens = tokens;
  Layouts layouts;
  layouts.q.spec.kind = LayoutKind::kCustom;
  layouts.q.tokens = tokens;
  layouts.q.tile_aligned = false;  // a turn may begin anywhere; bits depend on the tiles of keys alone
  for (const Shard& part : placing.extend(tokens)) {
    std::vector<Range> ranges;
    for (const Range& range : part.ranges())
      ranges.push_back({range.begin - turn.first, range.end - turn.first});
    layouts.q.shards.emplace_back(ranges);
  }
  layouts.kv = placing.layout();
  turn.mine = layouts.q.shards[static_cast<std::size_t>(c.transport.rank())];
  const Problem problem = turn_problem(c.options.shape, tokens, placing.tokens());
  const TurnChoice choice = choose_turn(c.machine, problem, layouts, c.per_node, c.options.schedule);
  turn.schedule = choice.schedule;
  turn.reason = choice.reason;
  RingOptions options = c.options.ring;
  options.schedule = choice.schedule;
  c.ring.reset();  // its workspace, before the next is taken
  c.ring.emplace(problem, layouts, options, c.transport, c.bytes);
  c.placing = std::move(placing);
  c.turn = std::move(turn);
  c.attended.assign(c.attended.size(), false);
  return c.turn;
}

void KvCache::attend(int layer, const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                     const TensorView& out, const LseView& lse, const float* sinks) {
  Impl& c = *impl_;
  if (layer < 0 || layer >= c.options.layers)
    throw InvalidArgument(
        fmt::format("layer is {}; the cache has {}, numbered from 0", layer, c.options.layers));
  if (!c.ring) throw InvalidArgument("no turn has begun; call begin_turn() first");
  const auto l = static_cast<std::size_t>(layer);
  if (c.attended[l]) throw InvalidArgument(fmt::format("layer {} has attended this turn already", layer));
  const auto tokens = c.turn.mine.tokens();
  RankTensors tensors{q, k, v, out, lse, sinks};
  LayerStorage& storage = c.storage[l];
  try {
    check_tensors(c.ring->plan().problem, tokens, tokens, tensors);
    storage.append(c.ring->plan().blocks[static_cast<std::size_t>(c.transport.rank())], k, v);
  } catch (...) {
    c.transport.fail(current_failure());  // the others must not wait for a rank that gave up
    throw;
  }
  c.attended[l] = true;
  tensors.packed = storage.packed();
  c.ring->attend(tensors);
}

std::int64_t KvCache::tokens() const noexcept { return impl_->placing.tokens(); }
Shard KvCache::shard() const {
  return impl_->placing.layout().shards[static_cast<std::size_t>(impl_->transport.rank())];
}
std::int64_t KvCache::bytes() const noexcept { return impl_->bytes; }
const RankReport& KvCache::report() const {
  if (!impl_->ring) throw InvalidArgument("no turn has begun; call begin_turn() first");
  return impl_->ring->report();
}

}  // namespace kvring
