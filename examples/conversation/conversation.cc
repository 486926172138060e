// A long conversation over a kvring::KvCache: a long first turn, questions over what is there, answers token
// by token. Prints how each turn attended and why, and fails unless all turns together give the bits of one
// prefill on one rank.
//
//   conversation                                  # 4 ranks as threads
//   conversation --ranks 8 --turns 8192,64,1x16,512,1x16 --machine cpu-10gbe
//   conversation --ranks 2 --turns 16384,1x64 --schedule ring     # what decoding would take so
//   mpirun -n 4 conversation                      # ranks are processes, where it was built with MPI
#include <fmt/format.h>
#include <kvring/attend.h>
#include <kvring/cache.h>
#include <kvring/error.h>
#ifdef CONVERSATION_WITH_MPI
#include <kvring/mpi.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr double kDeadline = 60;  // seconds that a rank waits for one that shows no sign of life

struct Options {
  int ranks = 4;
  std::string turns = "6144,48,1x12,700,1x12,2048,1x4";
  std::string machine = "cpu-25gbe";
  std::string schedule;  // empty: the cheapest
};

struct Group {
  std::int64_t tokens = 0;
  std::int64_t times = 1;
};

constexpr std::int64_t kMostTokens = 1 << 29;

// 0 for what is no number from 1 to kMostTokens.
std::int64_t parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool good =
      error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= kMostTokens;
  return good ? count : 0;
}

// "6144,48,1x12": a turn of 6,144 tokens, one of 48, twelve of one.
std::vector<Group> parse_turns(std::string_view text) {
  std::vector<Group> turns;
  std::int64_t tokens = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t x = part.find('x');
    const Group group{parse_count(part.substr(0, x)), x == part.npos ? 1 : parse_count(part.substr(x + 1))};
    if (group.tokens == 0 || group.times == 0)
      throw kvring::InvalidArgument(fmt::format(
          "--turns has '{}'; it must be a list of TOKENS or TOKENSxTIMES, such as 6144,48,1x12", part));
    tokens += group.tokens * group.times;
    if (tokens > kMostTokens)
      throw kvring::InvalidArgument(fmt::format(
          "--turns has more than {} tokens with '{}'; give fewer or shorter turns", kMostTokens, part));
    turns.push_back(group);
    begin = end + 1;
  }
  return turns;
}

std::optional<kvring::ScheduleKind> parse_schedule(const std::string& text) {
  if (text.empty()) return {};
  if (text == "ring") return kvring::ScheduleKind::kRing;
  if (text == "pass-q") return kvring::ScheduleKind::kPassQ;
  if (text == "tree") return kvring::ScheduleKind::kTree;
  throw kvring::InvalidArgument(
      fmt::format("--schedule is '{}'; over a cache it must be ring, pass-q or tree", text));
}

kvring::Problem model_layer(std::int64_t tokens) {
  kvring::Problem p;
  p.q_len = p.kv_len = tokens;
  p.q_heads = 8;
  p.kv_heads = 2;
  p.head_dim = p.value_dim = 64;
  p.causal = true;
  return p;
}

// Element i of a whole tensor; a stand-in for a model's projections.
float element(std::int64_t i, std::int64_t seed) {
  return static_cast<float>((i * 37 + seed * 101) % 1009) / 256 - 2;
}

// The rows of `tokens` positions, as one rank would have them.
class Rows {
 public:
  Rows(const kvring::Shard& positions, std::int64_t heads, std::int64_t dim, std::int64_t seed)
      : data_(static_cast<std::size_t>(positions.tokens() * heads * dim)),
        view_(kvring::dense_view<void>(data_.data(), kvring::DType::kF32,
                                       {1, positions.tokens(), heads, dim})) {
    const std::int64_t width = heads * dim;
    for (std::int64_t row = 0; row < positions.tokens(); ++row) {
      for (std::int64_t i = 0; i < width; ++i)
        data_[static_cast<std::size_t>(row * width + i)] = element(positions.position(row) * width + i, seed);
    }
  }
  const kvring::TensorView& view() const { return view_; }
  kvring::ConstTensorView read() const { return as_const(view_); }

 private:
  std::vector<float> data_;
  kvring::TensorView view_;
};

kvring::Shard in_sequence(const kvring::Turn& turn) {
  std::vector<kvring::Range> ranges;
  for (const kvring::Range& r : turn.mine.ranges())
    ranges.push_back({r.begin + turn.first, r.end + turn.first});
  return kvring::Shard(ranges);
}

// What a rank has at the end: its rows of the output, by position.
using Outputs = std::vector<std::pair<kvring::Shard, std::vector<float>>>;

Outputs converse(kvring::Transport& transport, const Options& options, const std::vector<Group>& groups,
                 std::int64_t tokens) {
  kvring::CacheOptions of_cache;
  of_cache.shape = model_layer(tokens);
  of_cache.capacity = tokens;
  of_cache.machine = options.machine;
  of_cache.schedule = parse_schedule(options.schedule);
  kvring::KvCache cache(of_cache, transport);
  const kvring::Problem& p = of_cache.shape;
  Outputs outputs;
  const bool prints = transport.rank() == 0;
  if (prints)
    fmt::print("{:>8} {:>8} {:>10} {:>9}  {}\n", "tokens", "turns", "keys", "ms / turn", "how, and why");
  for (const Group& group : groups) {
    const auto begin = std::chrono::steady_clock::now();
    std::string reason;
    for (std::int64_t i = 0; i < group.times; ++i) {
      const kvring::Turn& turn = cache.begin_turn(group.tokens);
      reason = turn.reason;
      const kvring::Shard mine = in_sequence(turn);
      const Rows q(mine, p.q_heads, p.head_dim, 1), k(mine, p.kv_heads, p.head_dim, 2),
          v(mine, p.kv_heads, p.value_dim, 3);
      std::vector<float> out(static_cast<std::size_t>(mine.tokens() * p.q_heads * p.value_dim));
      cache.attend(
          0, q.read(), k.read(), v.read(),
          kvring::dense_view<void>(out.data(), p.out_dtype, {1, mine.tokens(), p.q_heads, p.value_dim}));
      outputs.emplace_back(mine, std::move(out));
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (prints)
      fmt::print("{:>8} {:>8} {:>10} {:>9.2f}  {}\n", group.tokens, group.times, cache.tokens(),
                 took.count() / static_cast<double>(group.times), reason);
  }
  return outputs;
}

// The same, in one piece on one rank.
std::vector<float> prefill(std::int64_t tokens) {
  const kvring::Problem p = model_layer(tokens);
  const kvring::Shard all({{0, tokens}});
  const Rows q(all, p.q_heads, p.head_dim, 1), k(all, p.kv_heads, p.head_dim, 2),
      v(all, p.kv_heads, p.value_dim, 3);
  std::vector<float> out(static_cast<std::size_t>(tokens * p.q_heads * p.value_dim));
  kvring::attend(p, {}, q.read(), k.read(), v.read(),
                 kvring::dense_view<void>(out.data(), p.out_dtype, {1, tokens, p.q_heads, p.value_dim}));
  return out;
}

bool same_bits(const Outputs& outputs, const std::vector<float>& whole, std::int64_t width) {
  for (const auto& [rows, out] : outputs) {
    for (std::int64_t row = 0; row < rows.tokens(); ++row) {
      if (std::memcmp(&out[static_cast<std::size_t>(row * width)],
                      &whole[static_cast<std::size_t>(rows.position(row) * width)],
                      static_cast<std::size_t>(width) * sizeof(float)) != 0)
        return false;
    }
  }
  return true;
}

std::vector<Outputs> converse_on_threads(const Options& options, const std::vector<Group>& groups,
                                         std::int64_t tokens) {
  auto transports = kvring::make_inproc_transports(options.ranks, kDeadline);
  std::vector<Outputs> outputs(transports.size());
  std::vector<std::exception_ptr> errors(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        outputs[rank] = converse(*transports[rank], options, groups, tokens);
      } catch (const std::exception& error) {
        transports[rank]->fail(error.what());  // so that no rank waits for this one
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return outputs;
}

std::vector<Outputs> run_conversation(const Options& options, const std::vector<Group>& groups,
                                      std::int64_t tokens, [[maybe_unused]] bool over_mpi) {
#ifdef CONVERSATION_WITH_MPI
  if (over_mpi) {
    const auto transport = kvring::make_mpi_transport(MPI_COMM_WORLD, kDeadline);
    try {
      return {converse(*transport, options, groups, tokens)};
    } catch (const std::exception& error) {
      transport->fail(error.what());
      throw;
    }
  }
#endif
  return converse_on_threads(options, groups, tokens);
}

int run(const Options& options, bool over_mpi, bool prints) {
  const std::vector<Group> groups = parse_turns(options.turns);
  std::int64_t tokens = 0;
  for (const Group& group : groups) tokens += group.tokens * group.times;
  const std::vector<Outputs> outputs = run_conversation(options, groups, tokens, over_mpi);
  const std::vector<float> whole = prefill(tokens);
  const kvring::Problem p = model_layer(tokens);
  for (const Outputs& rank : outputs) {
    if (same_bits(rank, whole, p.q_heads * p.value_dim)) continue;
    fmt::print(stderr, "the bits differ from one prefill of {} tokens on one rank\n", tokens);
    return 1;
  }
  if (prints) fmt::print("all {} tokens: the bits of one prefill on one rank\n", tokens);
  return 0;
}

int run_or_say_why(const Options& options, bool over_mpi, bool prints) try {
  return run(options, over_mpi, prints);
} catch (const std::exception& error) {
  fmt::print(stderr, "conversation: {}\n", error.what());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A long conversation over a sharded KV cache: how each turn attends, and why");
  app.add_option("--ranks", options.ranks, "Ranks as threads of this process")->capture_default_str();
  app.add_option("--turns", options.turns, "Turn lengths, TOKENS or TOKENSxTIMES")->capture_default_str();
  app.add_option("--machine", options.machine, "A name of kvring plan --machine, or a profile's file")
      ->capture_default_str();
  app.add_option("--schedule", options.schedule,
                 "For every turn: ring, pass-q or tree; without it the cheapest of them");
  CLI11_PARSE(app, argc, argv);
#ifdef CONVERSATION_WITH_MPI
  if (std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_RANK") || std::getenv("PMIX_RANK")) {
    int provided = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int status = run_or_say_why(options, true, rank == 0);
    MPI_Finalize();
    return status;
  }
#endif
  return run_or_say_why(options, false, true);
}
