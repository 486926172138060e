#include "runtime/agreement.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "kvring/error.h"

namespace kvring {
namespace {

std::string shards_digest(const Layout& layout) {
  XXH64_hash_t digest = 0;
  for (const Shard& shard : layout.shards) {
    digest = XXH3_64bits_withSeed(shard.ranges().data(), shard.ranges().size() * sizeof(Range), digest + 1);
  }
  return fmt::format("{} over {} ranks, {:016x}", layout_name(layout.spec.kind), layout.shards.size(),
                     digest);
}

// What one rank tells the others: {"error": text} or {"fields": [[name, value], ...]}.
nlohmann::json describe(const std::vector<ProblemField>& fields) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProblemField& field : fields) list.push_back({field.name, field.value});
  return {{"fields", list}};
}

// A list that was not given is empty.
std::string shown(const nlohmann::json& value) {
  std::string text = value;
  return text.empty() ? "none" : text;
}

void compare(const nlohmann::json& first, const nlohmann::json& other, int rank) {
  const std::size_t count = std::max(first.size(), other.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= first.size() || i >= other.size() || first[i][0] != other[i][0]) {
      throw TransportError(fmt::format(
          "ranks disagree on what they compare: rank 0 and rank {} run different versions", rank));
    }
    if (first[i][1] == other[i][1]) continue;
    throw TransportError(fmt::format("ranks disagree on {}: rank 0 has {} and rank {} has {}",
                                     first[i][0].get<std::string>(), shown(first[i][1]), rank,
                                     shown(other[i][1])));
  }
}

}  // namespace

std::vector<ProblemField> agreement_fields(const Problem& problem, const Layouts& layouts,
                                           const RingOptions& options) {
  std::vector<ProblemField> fields = problem_fields(problem);
  fields.push_back({"layout of queries", shards_digest(layouts.q)});
  fields.push_back({"layout of keys", shards_digest(layouts.kv)});
  fields.push_back({"schedule", schedule_name(options.schedule)});
  fields.push_back({"heads_per_lap", fmt::format("{}", options.heads_per_lap)});
  return fields;
}

std::uint64_t agree(Transport& transport, const std::function<std::vector<ProblemField>()>& prepare) {
  nlohmann::json mine;
  std::exception_ptr error;
  try {
    mine = describe(prepare());
  } catch (const std::exception& e) {
    error = std::current_exception();
    mine = {{"error", e.what()}};
  }
  // Whatever bytes an error's words have: a rank that threw here would leave the others waiting.
  const std::string text = mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::vector<std::string> all = transport.allgather(text, "the ranks to agree on the problem");
  if (error) std::rethrow_exception(error);
  // Parsed only where they differ: a thousand ranks compare a thousand texts each.
  const auto differs = [&](std::size_t rank) { return all[rank] != all[0]; };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank > 0 && !differs(rank)) continue;
    const nlohmann::json told = nlohmann::json::parse(all[rank]);
    if (told.contains("error"))
      throw TransportError(fmt::format("rank {} failed: {}", rank, told["error"].get<std::string>()));
  }
  const nlohmann::json first = nlohmann::json::parse(all[0]);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (differs(rank))
      compare(first["fields"], nlohmann::json::parse(all[rank])["fields"], static_cast<int>(rank));
  }
  return XXH3_64bits(all[0].data(), all[0].size());
}

}  // namespace kvring
