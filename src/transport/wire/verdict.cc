#include "transport/wire/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace kvring::wire {
namespace {

double seconds_since(Clock::time_point then, Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

// Whether the last that was heard of a rank was that it waits for another one of these.
bool waits_for_one_of(const std::vector<int>& ranks, const Status& status) {
  return status.waiting != 0 && std::ranges::find(ranks, status.waiting_on) != ranks.end();
}

// The first suspect first: whoever waited for another silent rank may only have followed it; and whatever
// took the others along, the rank that fell silent first was not taken along by them.
void sort_by_suspicion(std::vector<int>& ranks, const std::vector<Peer>& peers) {
  const auto excuse = [&, all = ranks](int r) {
    const Peer& peer = peers[static_cast<std::size_t>(r)];
    return std::pair(waits_for_one_of(all, peer.status), peer.heard);
  };
  std::ranges::stable_sort(ranks, {}, excuse);
}

// ", last heard 4.1 s ago, nor does rank 3 (3.9 s)".
std::string last_heard_text(const std::vector<int>& ranks, const std::vector<double>& silences) {
  constexpr std::size_t kMostNames = 8;
  std::string text = fmt::format(", last heard {:.1f} s ago", silences[0]);
  if (ranks.size() == 1) return text;
  text += ranks.size() == 2 ? ", nor does rank" : ", nor do ranks";
  for (std::size_t i = 1; i < std::min(ranks.size(), kMostNames); ++i)
    text += fmt::format("{} {} ({:.1f} s)", i == 1 ? "" : ",", ranks[i], silences[i]);
  if (ranks.size() > kMostNames) text += fmt::format(" and {} more", ranks.size() - kMostNames);
  return text;
}

Verdict silent(const Evidence& evidence, std::vector<int> ranks) {
  sort_by_suspicion(ranks, evidence.peers);
  std::vector<double> silences;
  for (const int r : ranks)
    silences.push_back(
        std::max(1e-3, seconds_since(evidence.peers[static_cast<std::size_t>(r)].heard, evidence.now)));
  const double least = std::ranges::min(silences);
  const int others = static_cast<int>(evidence.peers.size()) - 1;
  if (std::ssize(ranks) == others && others > 1)
    return {
        evidence.rank, least,
        fmt::format("rank {} hears from no other rank: it is cut off, or all others are gone", evidence.rank),
        std::move(ranks)};
  const int first = ranks[0];
  const std::string text = fmt::format("rank {} does not answer{}: stopped, killed or cut off", first,
                                       last_heard_text(ranks, silences));
  return {first, least, text, std::move(ranks)};
}

// A rank that was stopped, or cut off, and is back: whoever gave it up has left by now, or is about to.
Verdict given_up(const Evidence& evidence, const std::vector<int>& no_answer) {
  Verdict verdict = silent(evidence, no_answer);
  verdict.culprit = evidence.rank;
  verdict.silent.clear();  // not theirs
  verdict.text =
      fmt::format("rank {} itself was not heard by rank {} in time: stopped or cut off, and now back",
                  evidence.rank, evidence.failure.rank);
  return verdict;
}

}  // namespace

Verdict find_culprit(const Evidence& evidence) {
  std::vector<int> no_answer, idle;
  for (int r = 0; r < static_cast<int>(evidence.peers.size()); ++r) {
    const bool self = r == evidence.rank;
    const Peer& peer = evidence.peers[static_cast<std::size_t>(r)];
    if (!self && peer.finished) continue;
    if (!self && !peer.stopped) no_answer.push_back(r);
    if ((self ? evidence.status : peer.status).waiting == 0) idle.push_back(r);
  }
  const Failure& failure = evidence.failure;
  if (!no_answer.empty()) {
    const bool was_away = failure.unheard == evidence.rank && failure.rank != evidence.rank;
    return was_away ? given_up(evidence, no_answer) : silent(evidence, std::move(no_answer));
  }
  if (failure.unheard >= 0)
    return {failure.unheard,
            0,
            fmt::format("rank {} answers now, but was not heard by rank {} in time", failure.unheard,
                        failure.rank),
            {}};
  if (!failure.timeout) return {failure.rank, 0, failure.text, {}};
  if (!idle.empty())
    return {idle[0],
            0,
            fmt::format("rank {} answers, but keeps the others waiting: it computes outside of the ring, or "
                        "hangs",
                        idle[0]),
            {}};
  return {-1, 0, "all ranks answer and wait for each other: a block was lost on its way", {}};
}

}  // namespace kvring::wire
