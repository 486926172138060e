#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/plan.h"
#include "planner/text.h"

namespace kvring {
namespace {

const Price* best_of(const std::vector<Price>& prices, bool here) {
  const Price* best = nullptr;
  for (const Price& price : prices) {
    if (!(here ? price.runs_here() : price.usable())) continue;
    if (best == nullptr || price.total_s < best->total_s) best = &price;
  }
  return best;
}

// The fastest; the ring, or else what this build has, where that is as good.
const Price* best_price(const std::vector<Price>& prices) {
  const Price* best = best_of(prices, false);
  const Price* here = best_of(prices, true);
  if (here == nullptr) return best;
  if (prices.front().runs_here() && prices.front().total_s <= kTie * best->total_s) return &prices.front();
  return here->total_s <= kTie * best->total_s ? here : best;
}

struct Smaller {
  int ranks = 0;
  double total_s = 0;
};

// A smaller ring, or no ring, that is at least as fast as the ring at hand.
std::optional<Smaller> smaller_ring(const PlanQuery& query, const Setting& s, double total_s) {
  std::optional<Smaller> best;
  for (int ranks = s.ranks() / 2; ranks >= 1; ranks /= 2) {
    Placement placement = s.placement();
    placement.ranks = ranks;
    const Setting smaller(query.machine, query.workload, placement);
    const Price ring = price_schedule(ScheduleKind::kRing, smaller);
    if (!ring.fits || ring.total_s > total_s) continue;
    if (!best || ring.total_s <= best->total_s) best = Smaller{ranks, ring.total_s};
  }
  return best;
}

std::string hop_text(const Hop& hop) {
  return fmt::format("the hop from rank {} to {} {} takes {}", hop.from, hop.to,
                     hop.between_nodes ? "between nodes" : "within a node", seconds_text(hop.seconds));
}

std::string ring_reason(const Setting& s, const Price& ring, const Price& fastest) {
  const std::int64_t break_even = break_even_slice(s);
  Hop hop = s.network().slowest_hop(static_cast<double>(ring.bytes_per_hop));
  hop.seconds = ring.transfer_s_per_step;  // beside computing
  if (ring.bytes_per_hop == 0)
    return fmt::format("ring: no rank needs a block of another, so nothing travels and it takes {}",
                       seconds_text(ring.total_s));
  const bool is_long = s.slice_queries() >= break_even;
  const std::string exposed = percent_text(ring.exposed_s / ring.total_s);
  if (ring.exposed_s < 0.01 * ring.total_s && is_long)
    return fmt::format(
        "ring: every hop hides behind its step ({} of transfer, {} of computing), since slices of {} tokens "
        "are longer than the {} that hide one",
        seconds_text(hop.seconds), seconds_text(ring.compute_s_per_step), count_text(s.slice_queries()),
        count_text(break_even));
  if (ring.exposed_s < 0.01 * ring.total_s)
    return fmt::format("ring: of its {} {} is exposed ({} of transfer a step, {} of computing)",
                       seconds_text(ring.total_s), ring.exposed_s > 0 ? "only " + exposed : "nothing",
                       seconds_text(hop.seconds), seconds_text(ring.compute_s_per_step));
  const std::string rank =
      ring.total_s <= fastest.total_s
          ? "the fastest of what fits"
          : fmt::format("within {} of the fastest of what fits, {} in {},", percent_text(kTie - 1),
                        fastest.name, seconds_text(fastest.total_s));
  const std::string length = is_long ? "its shorter steps do not hide it"
                                     : fmt::format("only slices of {} tokens or more would hide that, not {}",
                                                   count_text(break_even), count_text(s.slice_queries()));
  return fmt::format("ring: it is {} although {} of its {} are exposed, since {} and {}", rank, exposed,
                     seconds_text(ring.total_s), hop_text(hop), length);
}

std::string other_reason(const Setting& s, const Price& best, const std::vector<Price>& prices) {
  const Price& ring = prices.front();
  if (!ring.fits)
    return fmt::format(
        "{}: it holds {} a rank, where the ring would hold {}, which does not fit; it takes {}", best.name,
        decimal_bytes_text(static_cast<double>(ledger_total(best.memory))),
        decimal_bytes_text(static_cast<double>(ledger_total(ring.memory))), seconds_text(best.total_s));
  const std::string against =
      fmt::format("{} against {} of the ring", seconds_text(best.total_s), seconds_text(ring.total_s));
  const std::string sizes = fmt::format("{} per message where the ring moves {} of keys and values per hop",
                                        decimal_bytes_text(static_cast<double>(best.bytes_per_hop)),
                                        decimal_bytes_text(static_cast<double>(ring.bytes_per_hop)));
  if (best.name == "tree")
    return fmt::format("tree: for {} {} over {} keys, replicated queries and merged partials are {} ({})",
                       count_text(s.problem().q_len), s.problem().q_len == 1 ? "query" : "queries",
                       count_text(s.problem().kv_len), sizes, against);
  if (best.name == "pass-q")
    return fmt::format("pass-q: {} queries over {} keys with their accumulators are {} ({})",
                       count_text(s.problem().q_len), count_text(s.problem().kv_len), sizes, against);
  if (best.name == "tensor-parallel")
    return fmt::format(
        "tensor-parallel: {} query heads cut over {} devices need no ring, only sums of outputs ({})",
        s.problem().q_heads, s.ranks(), against);
  if (best.name == "ulysses")
    return fmt::format("ulysses: heads divide over {} ranks, and two exchanges take less than {} hops ({})",
                       s.ranks(), s.ranks() - 1, against);
  double step_by_step = 0;
  for (const StepWork& step : s.work().steps) step_by_step += step.pairs;
  if (kTie * s.of(ScheduleKind::kAllGather).work.steps.back().pairs < step_by_step)
    return fmt::format("all-gather: steps are uneven, and a ring waits for the slowest rank in each ({})",
                       against);
  if (ring.exposed_s < 0.01 * ring.total_s)
    return fmt::format("all-gather: it meets all keys at once and keeps no accumulators ({})", against);
  return fmt::format("all-gather: slices of {} tokens are so short that fewer, larger messages win ({})",
                     count_text(s.slice_queries()), against);
}

// Where no schedule fits at this size.
Choice more_ranks(const PlanQuery& query, const Setting& s) {
  Choice choice;
  const double limit = query.machine.memory_bytes.value;
  const auto model = static_cast<double>(ledger_total(s.memory().model));
  for (int ranks = s.ranks() * 2; ranks <= kMostPlanRanks; ranks *= 2) {
    Placement placement = s.placement();
    placement.ranks = ranks;
    const auto kind = fitting_schedule(query.machine, query.workload, placement);
    if (!kind) continue;
    choice.name = "more-ranks";
    choice.run_ranks = ranks;
    choice.run_schedule = schedule_name(*kind);
    choice.reason = fmt::format(
        "more-ranks: {} {} would hold {} each, more than the {} there are; {} on {} ranks fits", s.ranks(),
        s.ranks() == 1 ? "rank" : "ranks", decimal_bytes_text(static_cast<double>(s.memory().total())),
        decimal_bytes_text(limit), choice.run_schedule, ranks);
    return choice;
  }
  choice.name = "nothing-fits";
  choice.reason = fmt::format(
      "nothing-fits: a rank would hold {}{} of {}, and no ring of up to {} ranks lowers that enough; {}",
      decimal_bytes_text(static_cast<double>(s.memory().total())),
      query.workload.model ? fmt::format(" ({} of them the model)", decimal_bytes_text(model)) : "",
      decimal_bytes_text(limit), kMostPlanRanks,
      query.workload.model ? "cut the model further with --mesh tp=N,pp=N or --zero"
                           : "cut heads with --mesh tp=N, or plan for fewer tokens");
  return choice;
}

// Says what this build runs instead of a choice that it cannot run.
void add_instead(const PlanQuery& query, const Setting& s, const Price& chosen, const Price* here,
                 Choice& choice) {
  if (chosen.not_here.empty()) {
    choice.run_ranks = s.ranks();
    choice.run_schedule = chosen.name;
    return;
  }
  choice.reason += fmt::format("; this build cannot run it ({})", chosen.not_here);
  if (here == nullptr) {
    choice.reason += ", and nothing that it can run fits";
    return;
  }
  choice.run_schedule = here->name;
  choice.run_ranks = s.ranks();
  double total_s = here->total_s;
  if (const auto smaller = smaller_ring(query, s, here->total_s)) {
    choice.run_schedule = "ring";
    choice.run_ranks = smaller->ranks;
    total_s = smaller->total_s;
  }
  choice.reason +=
      fmt::format(", what it can run is {} on {} {} in {}", choice.run_schedule, *choice.run_ranks,
                  *choice.run_ranks == 1 ? "rank" : "ranks", seconds_text(total_s));
}

}  // namespace

Choice choose(const PlanQuery& query, const Setting& s, const std::vector<Price>& prices) {
  const Price* best = best_price(prices);
  if (best == nullptr) return more_ranks(query, s);
  Choice choice;
  if (s.ranks() == 1) {
    choice.name = "one-rank";
    choice.reason = fmt::format("one-rank: no ring, since one device holds all of it ({} of {}) and takes {}",
                                decimal_bytes_text(static_cast<double>(s.memory().total())),
                                decimal_bytes_text(query.machine.memory_bytes.value),
                                seconds_text(prices.front().total_s));
    choice.run_ranks = 1;
    choice.run_schedule = "ring";
    return choice;
  }
  if (const auto smaller = smaller_ring(query, s, best->total_s)) {
    choice.name = smaller->ranks == 1 ? "one-rank" : "fewer-ranks";
    choice.reason =
        fmt::format("{}: {} takes {}, no longer than {} on {} ranks with {}, since {}", choice.name,
                    smaller->ranks == 1 ? "one device holds all of it and"
                                        : fmt::format("a ring of {} fits and", smaller->ranks),
                    seconds_text(smaller->total_s), best->name, s.ranks(), seconds_text(best->total_s),
                    hop_text(s.network().slowest_hop(static_cast<double>(prices.front().bytes_per_hop))));
    choice.run_ranks = smaller->ranks;
    choice.run_schedule = "ring";
    return choice;
  }
  choice.name = best->name;
  choice.reason =
      best->name == "ring" ? ring_reason(s, *best, *best_of(prices, false)) : other_reason(s, *best, prices);
  add_instead(query, s, *best, best_of(prices, true), choice);
  return choice;
}

}  // namespace kvring
