#include "transport/wire/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvring::wire {
namespace {

double seconds_since(Clock::time_point then, Clock::time_point now) {
  return std::chrono::duration<double>(now - then).count();
}

Verdict silent(const Evidence& evidence, const std::vector<int>& ranks) {
  const int others = static_cast<int>(evidence.peers.size()) - 1;
  const Peer& first = evidence.peers[static_cast<std::size_t>(ranks[0])];
  const double silent_s = std::max(1e-3, seconds_since(first.heard, evidence.now));
  if (std::ssize(ranks) == others && others > 1)
    return {evidence.rank, silent_s,
            fmt::format("rank {} hears from no other rank: it is cut off, or all others are gone",
                        evidence.rank)};
  const std::string more = ranks.size() == 1 ? "" : fmt::format(" ({} more do not either)", ranks.size() - 1);
  return {ranks[0], silent_s,
          fmt::format("rank {} does not answer{}, last heard {:.1f} s ago: stopped, killed or cut off",
                      ranks[0], more, silent_s)};
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
  if (!no_answer.empty()) return silent(evidence, no_answer);
  const Failure& failure = evidence.failure;
  if (failure.unheard >= 0)
    return {failure.unheard, 0,
            fmt::format("rank {} answers now, but was not heard by rank {} in time", failure.unheard,
                        failure.rank)};
  if (!failure.timeout) return {failure.rank, 0, failure.text};
  if (!idle.empty())
    return {idle[0], 0,
            fmt::format("rank {} answers, but keeps the others waiting: it computes outside of the ring, or "
                        "hangs",
                        idle[0])};
  return {-1, 0, "all ranks answer and wait for each other: a block was lost on its way"};
}

}  // namespace kvring::wire
