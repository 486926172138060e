// A small decoder transformer with data, pipeline, tensor and ring parallelism together, and the same bits as
// on one rank. worker.cc is the part to read.
#include <fmt/format.h>
#include <kvring/error.h>
#include <kvring/mesh.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check.h"
#include "worker.h"

namespace {

enum ExitCode { kIdentical = 0, kInternal = 1, kUsage = 2, kTransport = 4, kDifferent = 5 };

constexpr const char* kDescription =
    R"(A decoder transformer of two layers, run by all ranks of an MPI job and compared with one rank, bit for bit.

Examples:
  mpirun -n 16 transformer --mesh dp=2,pp=2,tp=2,ring=2
  mpirun -n 4 transformer --mesh ring=4 --tokens 4000 --json
  transformer)";

constexpr const char* kFooter =
    "Exit codes: 0 identical to one rank, 1 internal error, 2 usage, 4 transport or timeout, 5 different.";

struct Options {
  std::string mesh;
  Job job{1000, 4};
  bool json = false;
};

// What rank 0 tells of each rank.
struct RankRow {
  std::int64_t tokens, entries, ring_bytes_sent;
  double attention_s;
};

std::vector<RankRow> gather_rows(const Worker& worker, int ranks) {
  const RankRow mine{worker.positions().tokens(), worker.entries().size(), worker.ring_bytes_sent(),
                     worker.attention_s()};
  std::vector<RankRow> rows(static_cast<std::size_t>(ranks));
  MPI_Gather(&mine, sizeof mine, MPI_BYTE, rows.data(), sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
  return rows;
}

void print_table(const kvring::Mesh& mesh, const Options& options, const std::vector<RankRow>& rows,
                 const Comparison& result, double wall_s) {
  fmt::print("mesh {}, {} ranks; {} layers, {} entries of {} tokens; {:.2f} s\n", mesh_text(mesh),
             mesh.ranks(), Model::kLayers, options.job.batch, options.job.tokens, wall_s);
  fmt::print("rank");
  for (const kvring::MeshAxis& axis : mesh.axes()) fmt::print("  {:>4}", axis.name);
  fmt::print("  entries  tokens  attention s  ring bytes sent\n");
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const RankRow& row = rows[static_cast<std::size_t>(rank)];
    fmt::print("{:>4}", rank);
    for (const int coordinate : mesh.coordinates(rank)) fmt::print("  {:>4}", coordinate);
    fmt::print("  {:>7}  {:>6}  {:>11.3f}  {:>15}\n", row.entries, row.tokens, row.attention_s,
               row.ring_bytes_sent);
  }
  fmt::print("digest of the last hidden states  {:016x}\n", result.digest);
  fmt::print("digest of those of one rank       {:016x}\n", result.one_rank_digest);
  if (result.identical())
    fmt::print("identical to one rank: all bits of {} values\n", result.values);
  else
    fmt::print("NOT identical to one rank: {} of {} values differ, by at most {:.3g}\n", result.unlike,
               result.values, result.largest_difference);
}

void print_json(const kvring::Mesh& mesh, const Options& options, const std::vector<RankRow>& rows,
                const Comparison& result, double wall_s) {
  nlohmann::ordered_json object = {{"schema_version", 1},
                                   {"mesh", mesh_text(mesh)},
                                   {"ranks", mesh.ranks()},
                                   {"layers", Model::kLayers},
                                   {"batch", options.job.batch},
                                   {"tokens", options.job.tokens},
                                   {"digest", fmt::format("{:016x}", result.digest)},
                                   {"one_rank_digest", fmt::format("{:016x}", result.one_rank_digest)},
                                   {"identical", result.identical()},
                                   {"values_compared", result.values},
                                   {"values_different", result.unlike},
                                   {"largest_difference", result.largest_difference},
                                   {"wall_s", wall_s},
                                   {"per_rank", nlohmann::ordered_json::array()}};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const RankRow& row = rows[static_cast<std::size_t>(rank)];
    nlohmann::ordered_json entry = {{"rank", rank}};
    for (const kvring::MeshAxis& axis : mesh.axes()) entry[axis.name] = mesh.coordinate(rank, axis.name);
    entry.update({{"entries", row.entries},
                  {"tokens", row.tokens},
                  {"attention_s", row.attention_s},
                  {"ring_bytes_sent", row.ring_bytes_sent}});
    object["per_rank"].push_back(std::move(entry));
  }
  fmt::print("{}\n", object.dump(2));
}

int run(const Options& options, int rank, int ranks) {
  const std::string text = options.mesh.empty() ? fmt::format("ring={}", ranks) : options.mesh;
  const kvring::Mesh mesh = kvring::parse_mesh(text, ranks);
  check_job(mesh, options.job);
  Worker worker(MPI_COMM_WORLD, mesh, options.job);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Matrix> hidden = worker.run();
  MPI_Barrier(MPI_COMM_WORLD);
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Comparison result = compare_with_one_rank(MPI_COMM_WORLD, mesh, options.job, worker, hidden);
  const std::vector<RankRow> rows = gather_rows(worker, ranks);
  if (rank == 0) (options.json ? print_json : print_table)(mesh, options, rows, result, wall_s);
  return result.identical() ? kIdentical : kDifferent;
}

// All ranks find the same fault in the command line, and rank 0 says so.
int usage_error(const std::string& what, int rank) {
  if (rank == 0) fmt::print(stderr, "transformer: {} (see transformer --help)\n", what);
  return kUsage;
}

int parse_and_run(int argc, char** argv, int rank, int ranks) {
  Options options;
  CLI::App app(kDescription, "transformer");
  app.footer(kFooter);
  app.add_option(
      "--mesh", options.mesh,
      "Ranks along each axis, nearest ranks last, of dp, pp, tp and ring; default all ranks in one ring");
  app.add_option("--tokens", options.job.tokens, "Tokens of each batch entry")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--batch", options.job.batch, "Batch entries")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON");
  try {
    app.parse(argc, argv);
    return run(options, rank, ranks);
  } catch (const CLI::Success& success) {  // --help
    return rank == 0 ? app.exit(success) : kIdentical;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), rank);
  } catch (const kvring::InvalidArgument& error) {
    return usage_error(error.what(), rank);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // An error that one rank alone may have: MPI_Abort, so that no other waits for it.
  const auto abort = [&](const std::exception& error, ExitCode code) {
    fmt::print(stderr, "transformer: rank {}: {}\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, code);
    return code;
  };
  int code = kInternal;
  try {
    code = parse_and_run(argc, argv, rank, ranks);
  } catch (const kvring::TransportError& error) {
    code = abort(error, kTransport);
  } catch (const kvring::Timeout& error) {
    code = abort(error, kTransport);
  } catch (const std::exception& error) {
    code = abort(error, kInternal);
  }
  MPI_Finalize();
  return code;
}
