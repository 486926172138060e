// kvring simulate: a schedule played in virtual time on a described network.
#include "planner/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/plan_options.h"
#include "cli/progress.h"
#include "cli/simulated_trace.h"
#include "cli/values.h"
#include "kvring/error.h"
#include "kvring/version.h"
#include "planner/text.h"
#include "problem/support.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDescription =
    R"(Plays a schedule step by step in virtual time, on up to 4096 ranks of a described machine.

Examples:
  kvring simulate --machine h100 --ranks 64 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 1048576 --causal
  kvring simulate --machine h100 --ranks 64 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 1048576 --causal \
    --layout contiguous --faults slow=3:1.5,link=7:4 --jitter 0.1 --seed 1
  kvring simulate --machine cpu-100gbe --ranks 16 --q-heads 32 --head-dim 128 --seq-len 262144 \
    --faults stop=5:0.25
  kvring simulate --machine h100 --ranks 64 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 1 --kv-len 1048576 \
    --schedule tree
  kvring simulate --machine h100 --ranks 8 --q-heads 32 --kv-heads 8 --head-dim 128 --seq-len 131072 --causal \
    --trace run.json)";

struct Options {
  PlanOptions plan;
  std::optional<std::string> schedule, jitter, seed, faults, timeout, trace;
  bool json = false;
};

// One of a kind for each rank: of two nobody could say which counts.
template <typename Fault>
void add_once(std::vector<Fault>& faults, int rank, double number, std::string_view kind) {
  for (const Fault& fault : faults) {
    if (fault.rank == rank)
      throw InvalidArgument(fmt::format("--faults has {}={} twice; give it once", kind, rank));
  }
  faults.push_back({rank, number});
}

// "slow=3:1.5": kind, rank and number.
void add_fault(Faults& faults, const std::string& text, std::string_view part) {
  const std::size_t equals = std::min(part.find('='), part.size());
  const std::size_t colon = std::min(part.find(':', equals), part.size());
  const std::string_view kind = part.substr(0, equals);
  if ((kind != "slow" && kind != "link" && kind != "stop") || colon == part.size())
    throw InvalidArgument(
        fmt::format("--faults is '{}'; it must be a list of slow=RANK:FACTOR, link=RANK:FACTOR and "
                    "stop=RANK:SECONDS, such as slow=3:1.5,stop=5:0.25",
                    text));
  const std::int64_t rank = parse_integer("a rank of --faults", part.substr(equals + 1, colon - equals - 1));
  if (rank < 0 || rank >= kMostPlanRanks)
    throw InvalidArgument(
        fmt::format("a rank of --faults is {}; it must be 0 to {}", rank, kMostPlanRanks - 1));
  const double number = parse_real("a number of --faults", std::string(part.substr(colon + 1)));
  if (!(number >= 0 && number <= 1e9))
    throw InvalidArgument(
        fmt::format("a number of --faults is {}; it must be 0 to 1e9", part.substr(colon + 1)));
  const int r = static_cast<int>(rank);
  if (kind == "slow") add_once(faults.ranks, r, number, kind);
  if (kind == "link") add_once(faults.links, r, number, kind);
  if (kind == "stop") add_once(faults.stops, r, number, kind);
}

// Bytes; what the kernel could free counts, where it says how much.
std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    std::int64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return ::sysconf(_SC_AVPHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
}

SimulationOptions understand_simulation(const Options& o) {
  SimulationOptions options;
  const auto real = [](const char* flag, const std::optional<std::string>& text, double least,
                       double otherwise) {
    if (!text) return otherwise;
    const double value = parse_real(flag, *text);
    if (!(value >= least && value <= 1e6))
      throw InvalidArgument(fmt::format("{} is {}; it must be {} to 1e6", flag, *text, least));
    return value;
  };
  // Before the kernel has to end the process, or others.
  options.memory_bytes = static_cast<double>(available_memory());
  options.jitter = real("--jitter", o.jitter, 0, 0);
  options.timeout_s = real("--timeout", o.timeout, 0.001, options.timeout_s);
  if (o.seed) options.seed = static_cast<std::uint64_t>(parse_integer("--seed", *o.seed));
  if (!o.faults) return options;
  std::string_view rest = *o.faults;
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    add_fault(options.faults, *o.faults, rest.substr(0, comma));
    if (comma == rest.size()) return options;
    rest.remove_prefix(comma + 1);
  }
}

double exposed(const RankTimes& r) { return r.late_s + r.transfer_s + r.send_s; }

std::string stall_text(const Stall& s, std::int64_t steps) {
  if (s.peer == s.rank)
    return fmt::format("rank {} stopped in lap {}, step {} of {}, and no other rank waited for it", s.rank,
                       s.lap, s.step, steps);
  const std::string parcel = fmt::format("{} {}", cargo_name(s.cargo), s.owner);
  return fmt::format("rank {} gives up at {}: it waits for {} (lap {}, step {} of {}) {} rank {}", s.rank,
                     seconds_text(s.at_s),
                     s.receives ? parcel : fmt::format("the end of its send of {}", parcel), s.lap, s.step,
                     steps, s.receives ? "from" : "to", s.peer);
}

// One simulation and what it is of.
struct Played {
  const PlanQuery& query;
  const Setting& setting;
  ScheduleKind schedule;
  const Simulation& simulation;
  bool traced;
  bool disturbed;  // by faults or jitter
};

Json simulation_json(const Played& played) {
  const auto& [query, setting, schedule, s, traced, disturbed] = played;
  Json json = {{"schema_version", kSchemaVersion},
               {"version", version()},
               {"machine", query.machine.name},
               {"ranks", setting.ranks()},
               {"layout", layout_name(query.workload.layout.kind)},
               {"schedule", schedule_name(schedule)},
               {"stalled", s.stall.has_value()}};
  if (traced) json["laps_traced"] = s.laps_told;
  if (s.stall) {
    json["stall"] = {{"rank", s.stall->rank}, {"peer", s.stall->peer},
                     {"lap", s.stall->lap},   {"step", s.stall->step},
                     {"at_s", s.stall->at_s}, {"message", stall_text(*s.stall, s.steps)}};
    return json;
  }
  json["total_s"] = s.total_s;
  json["planned_s"] = price_schedule(schedule, setting).total_s;
  json["efficiency"] = s.efficiency;
  json["laps"] = s.laps;
  json["laps_played"] = s.laps_played;
  json["played_s"] = s.played_s;
  json["critical_path"] = {{"compute_s", s.path.compute_s},
                           {"transfer_s", s.path.transfer_s},
                           {"transfers", s.path.transfers},
                           {"begins_at_rank", s.path.begins_at},
                           {"ends_at_rank", s.path.ends_at}};
  json["per_rank"] = Json::array();
  for (const RankTimes& r : s.ranks)
    json["per_rank"].push_back({{"compute_s", r.compute_s},
                                {"exposed_s", exposed(r)},
                                {"exposed_late_s", r.late_s},
                                {"exposed_transfer_s", r.transfer_s},
                                {"exposed_send_s", r.send_s},
                                {"end_s", r.end_s}});
  return json;
}

std::string simulation_text(const Played& played) {
  const auto& [query, setting, schedule, s, traced, disturbed] = played;
  std::string text =
      fmt::format("{} of {} ranks of {}, {} layout, {} queries x {} keys\n", schedule_name(schedule),
                  setting.ranks(), query.machine.name, layout_name(query.workload.layout.kind),
                  count_text(query.workload.problem.q_len), count_text(query.workload.problem.kv_len));
  if (traced && s.laps_told < s.laps)
    text += fmt::format("the trace holds the first {} of {} laps\n", s.laps_told, s.laps);
  if (s.stall) return text + stall_text(*s.stall, s.steps) + "\n";
  text += fmt::format("takes {} (planned{}: {}); computing alone, evenly shared, would take {} of it\n",
                      seconds_text(s.total_s), disturbed ? ", undisturbed" : "",
                      seconds_text(price_schedule(schedule, setting).total_s), percent_text(s.efficiency));
  const auto by_exposed = [](const RankTimes& a, const RankTimes& b) { return exposed(a) < exposed(b); };
  const auto worst = std::max_element(s.ranks.begin(), s.ranks.end(), by_exposed);
  double sum = 0;
  for (const RankTimes& r : s.ranks) sum += exposed(r);
  text += fmt::format(
      "in the {} of {} laps played, {}: a rank waits {}, at most rank {} with {} ({} for late senders, {} "
      "for "
      "transfers, {} for sends)\n",
      count_text(s.laps_played), count_text(s.laps), seconds_text(s.played_s),
      seconds_text(sum / static_cast<double>(s.ranks.size())), worst - s.ranks.begin(),
      seconds_text(exposed(*worst)), seconds_text(worst->late_s), seconds_text(worst->transfer_s),
      seconds_text(worst->send_s));
  return text +
         fmt::format("critical path, from rank {} to {}: {} of computing, and {} transfers that take {}\n",
                     s.path.begins_at, s.path.ends_at, seconds_text(s.path.compute_s), s.path.transfers,
                     seconds_text(s.path.transfer_s));
}

int run_simulate(const Options& options) {
  const PlanQuery query = understand(options.plan);
  if (!query.ranks)
    throw InvalidArgument(fmt::format("--ranks is {}: a simulation is of a ring size, such as 64",
                                      options.plan.ranks.value_or("missing")));
  SimulationOptions simulation_options = understand_simulation(options);
  check_output("--trace", options.trace, options.plan.machine);
  const Setting setting(query.machine, query.workload, {*query.ranks, query.ranks_per_node, {}});
  const ScheduleKind schedule = options.schedule ? parse_schedule(*options.schedule) : ScheduleKind::kRing;
  std::optional<SimulatedTrace> trace;
  if (options.trace) {
    trace.emplace(*options.trace, setting.ranks());
    simulation_options.tell = [&](int rank, const Operation& o) { trace->add(rank, o); };
  }
  Progress progress("simulate", !options.json);
  simulation_options.progress = [&](double share) { progress.update(share); };
  const Simulation simulation = simulate(schedule, setting, simulation_options);
  progress.finish();
  if (trace) trace->write(schedule, setting, simulation);
  const Played played{query,      setting,           schedule,
                      simulation, trace.has_value(), options.faults || simulation_options.jitter > 0};
  if (options.json) {
    fmt::print("{}\n", simulation_json(played).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", simulation_text(played));
  }
  return kDone;
}

}  // namespace

Command add_simulate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("simulate", kDescription);
  auto o = std::make_shared<Options>();
  add_machine_flags(*app, o->plan);
  app->get_option("--ranks")->type_name("P")->description("Ring size");
  add_workload_flags(*app, o->plan);
  const auto add = [&](const char* flag, std::optional<std::string>& value, const char* type,
                       const char* help) {
    app->add_option(flag, value, help)->type_name(type)->group("Simulation");
  };
  add("--schedule", o->schedule, "NAME", "ring, all-gather, pass-q, ulysses or tree (default ring)");
  add("--jitter", o->jitter, "X", "Every computing and transfer takes up to 1 + X times as long (default 0)");
  add("--seed", o->seed, "N", "Of the jitter (default 0)");
  add("--faults", o->faults, "LIST",
      "slow=RANK:FACTOR, link=RANK:FACTOR (to the next rank), stop=RANK:SECONDS");
  add("--timeout", o->timeout, "S",
      "Where a rank has stopped, others give up after S seconds without progress (default 30)");
  app->add_option("--trace", o->trace, "Gets what each rank did when, for Perfetto and kvring trace")
      ->type_name("F.json")
      ->group("Output");
  app->add_flag("--json", o->json, "Print one JSON object")->disable_flag_override()->group("Output");
  return {app, [o] { return run_simulate(*o); }, [o] { return o->json; }};
}

}  // namespace kvring::cli
