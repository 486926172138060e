// A job: what attend and verify are asked, with the files open and everything checked that one process can
// check alone.
#pragma once

#include <string>
#include <vector>

#include "cli/job_options.h"
#include "io/input.h"
#include "io/tensor_info.h"
#include "kvring/ring.h"

namespace kvring::cli {

// A result file to be written.
struct OutputPlan {
  std::string path;
  std::vector<TensorSpec> tensors;  // of "out", "lse"
};

// Shared by all ranks of a process, which only read it.
struct Job {
  InputTensor q, k, v;
  std::vector<float> sinks;  // empty: none
  Problem problem;
  Layouts layouts;
  RingOptions ring;
  std::vector<OutputPlan> outputs;
  std::optional<std::string> trace;  // a file
  std::vector<std::string> notes;    // for stderr

  const float* sinks_or_null() const { return problem.has_sinks ? sinks.data() : nullptr; }
};

// However the two are spelled; also where neither exists yet.
bool same_file(const std::string& a, const std::string& b);

// Throws InvalidArgument for an output without a name, or one that would take the place of the input, if that
// is a file.
void check_output(const char* flag, const std::optional<std::string>& output,
                  const std::optional<std::string>& input = {});

// Throws InvalidArgument for more KV heads per lap than there are.
void check_heads_per_lap(const RingOptions& ring, const Problem& problem);

// Opens the files and checks that all fits together. Throws InputFile, InvalidArgument or Unsupported.
Job open_job(const JobOptions& options, const Settings& settings, const Team& team);

}  // namespace kvring::cli
