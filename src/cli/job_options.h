// The flags that attend and verify share, as typed and as understood.
#pragma once

#include <optional>
#include <string>

#include "cli/team.h"
#include "kvring/ring.h"

namespace CLI {  // NOLINT(readability-identifier-naming): its name
class App;
}

namespace kvring::cli {

// As typed. Nothing is converted while parsing, so that every message is ours.
struct JobOptions {
  std::optional<std::string> input, q, k, v, sinks;
  std::optional<std::string> output, lse, output_dtype, trace;
  bool causal = false;
  std::optional<std::string> window, softcap, softmax_scale, cu_seqlens_q, cu_seqlens_kv;
  std::optional<std::string> ranks, layout, stripe, cut, tile, schedule, accumulation;
  std::optional<std::string> heads_per_lap, threads, rank_memory, transport, timeout, mpi_progress, record;
  bool json = false;
  bool quiet = false;
};

// Adds the flags of one group.
void add_input_flags(CLI::App& app, JobOptions& options);
void add_attention_flags(CLI::App& app, JobOptions& options);
void add_ring_flags(CLI::App& app, JobOptions& options);
void add_transport_flags(CLI::App& app, JobOptions& options);
void add_message_flags(CLI::App& app, JobOptions& options);
void add_output_flags(CLI::App& app, JobOptions& options);
// All but those of output.
void add_job_flags(CLI::App& app, JobOptions& options);

// As understood, before any file is opened.
struct Settings {
  Problem problem;  // what the flags say; shapes and dtypes come from the files
  std::optional<DType> out_dtype;
  LayoutSpec layout;
  RingOptions ring;  // threads 0: the team's cores per rank
  TeamSpec team;
  std::optional<std::string> record;  // folder
};

// Throws InvalidArgument or Unsupported for a value that makes no sense, InputFile for a list file that
// cannot be read.
Settings understand(const JobOptions& options);
// The same where there are no input files.
Settings understand_without_input(const JobOptions& options);

}  // namespace kvring::cli
