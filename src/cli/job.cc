#include "cli/job.h"

#include <fmt/format.h>

#include <filesystem>

#include "problem/support.h"

namespace kvring::cli {
namespace {

std::string shape_of(const InputTensor& tensor) {
  return shape_text({tensor.shape().begin(), tensor.shape().end()});
}

void check_fit(const InputTensor& q, const InputTensor& k, const InputTensor& v) {
  constexpr const char* kAxes[] = {"batch", "seqlen", "heads", "dim"};
  const auto agree = [&](std::size_t axis, const char* a_name, const InputTensor& a, const char* b_name,
                         const InputTensor& b) {
    if (a.shape()[axis] != b.shape()[axis])
      throw InvalidArgument(
          fmt::format("{0} has {1} {2} and {3} has {1} {4}; they must agree ({0} is {5}, {3} is {6})", a_name,
                      kAxes[axis], a.shape()[axis], b_name, b.shape()[axis], shape_of(a), shape_of(b)));
  };
  agree(0, "q", q, "k", k);
  for (std::size_t axis : {0, 1, 2}) agree(axis, "k", k, "v", v);
  agree(3, "q", q, "k", k);
  if (k.dtype() != v.dtype())
    throw InvalidArgument(fmt::format("k is {} and v is {}; they must share a dtype", dtype_name(k.dtype()),
                                      dtype_name(v.dtype())));
}

Problem complete(const Settings& settings, const InputTensor& q, const InputTensor& k, const InputTensor& v) {
  Problem p = settings.problem;
  p.batch = q.shape()[0];
  p.q_len = q.shape()[1];
  p.kv_len = k.shape()[1];
  p.q_heads = q.shape()[2];
  p.kv_heads = k.shape()[2];
  p.head_dim = q.shape()[3];
  p.value_dim = v.shape()[3];
  p.q_dtype = q.dtype();
  p.kv_dtype = k.dtype();
  p.out_dtype = settings.out_dtype.value_or(p.q_dtype);
  validate(p);
  return p;
}

// Results look like q did: without a batch dimension where q has none.
std::vector<std::int64_t> like_input(std::vector<std::int64_t> shape, const InputTensor& q) {
  if (!q.has_batch()) shape.erase(shape.begin());
  return shape;
}

void refuse_overwriting(const JobOptions& options, const std::vector<OutputPlan>& outputs) {
  const auto refuse = [](const std::string& path, const char* what) {
    throw InvalidArgument(fmt::format("the output {} is {} as well; write to another file", path, what));
  };
  check_output("--trace", options.trace);
  std::vector<std::string> paths;
  for (const OutputPlan& output : outputs) paths.push_back(output.path);
  for (const std::string& path : paths)
    if (options.trace && same_file(*options.trace, path)) refuse(path, "the trace");
  if (options.trace) paths.push_back(*options.trace);
  for (const auto* input : {&options.input, &options.q, &options.k, &options.v, &options.sinks}) {
    for (const std::string& path : paths)
      if (*input && same_file(**input, path)) refuse(path, "an input");
  }
}

std::vector<OutputPlan> plan_outputs(const JobOptions& options, const Problem& p, const InputTensor& q) {
  const TensorSpec out = {"out", p.out_dtype, like_input({p.batch, p.q_len, p.q_heads, p.value_dim}, q)};
  const TensorSpec lse = {"lse", DType::kF32, like_input({p.batch, p.q_heads, p.q_len}, q)};
  if (!options.output) {
    if (options.lse) throw InvalidArgument("--lse goes with --output F.npy, which is missing");
    return {};
  }
  if (file_format(*options.output) == FileFormat::kSafetensors) {
    if (options.lse)
      throw InvalidArgument(
          fmt::format("--output {} holds lse already; leave out --lse, or write .npy", *options.output));
    return {{*options.output, {out, lse}}};
  }
  std::vector<OutputPlan> plans = {{*options.output, {out}}};
  if (options.lse) {
    if (file_format(*options.lse) != FileFormat::kNpy)
      throw InvalidArgument(fmt::format("--lse is {}; it must end in .npy, as --output does", *options.lse));
    if (same_file(*options.lse, *options.output))
      throw InvalidArgument(
          fmt::format("--lse {} and --output {} are the same file", *options.lse, *options.output));
    plans.push_back({*options.lse, {lse}});
  }
  return plans;
}

bool has_unused_sinks(const JobOptions& options, const TensorFile& file, const Problem& p) {
  if (!options.input || options.sinks) return false;
  try {
    file.read_f32("sinks", {p.q_heads});
    return true;
  } catch (const InputFile&) {
    return false;  // none, or nothing that could be sinks
  }
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const auto whole = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, error), error);
  };
  return whole(a) == whole(b);
}

void check_output(const char* flag, const std::optional<std::string>& output,
                  const std::optional<std::string>& input) {
  if (!output) return;
  if (output->empty()) throw InvalidArgument(fmt::format("{} is empty; it must be the path of a file", flag));
  std::error_code error;
  if (input && std::filesystem::exists(*input, error) && same_file(*input, *output))
    throw InvalidArgument(fmt::format("the output {} is an input as well; write to another file", *output));
}

void check_heads_per_lap(const RingOptions& ring, const Problem& p) {
  const std::int64_t heads = p.batch * p.kv_heads;
  if (ring.heads_per_lap <= heads) return;
  throw InvalidArgument(fmt::format(
      "--heads-per-lap is {}; there are {} KV heads (batch {} x kv_heads {}): use 1 to {}, or 0 to "
      "have it chosen",
      ring.heads_per_lap, heads, p.batch, p.kv_heads, heads));
}

Job open_job(const JobOptions& options, const Settings& settings, const Team& team) {
  const TensorFile q_file(options.input ? *options.input : *options.q);
  const TensorFile k_file = options.input ? q_file : TensorFile(*options.k);
  const TensorFile v_file = options.input ? q_file : TensorFile(*options.v);
  const InputTensor q = q_file.tensor("q");
  const InputTensor k = k_file.tensor("k");
  const InputTensor v = v_file.tensor("v");
  check_fit(q, k, v);
  Job job{q, k, v, {}, complete(settings, q, k, v), {}, settings.ring, {}, {}, {}};
  const Problem& p = job.problem;
  if (options.sinks) job.sinks = TensorFile(*options.sinks).read_f32("sinks", {p.q_heads});
  if (has_unused_sinks(options, q_file, p))
    job.notes.push_back(fmt::format("{} has a tensor sinks, which is not used; pass --sinks {} to use it",
                                    *options.input, *options.input));
  check_heads_per_lap(job.ring, p);
  job.layouts = make_layouts(settings.layout, p, team.ranks());
  require_supported(p, job.layouts, job.ring.schedule);
  if (job.ring.threads == 0) job.ring.threads = team.cores_per_rank();
  job.outputs = plan_outputs(options, p, q);
  job.trace = options.trace;
  refuse_overwriting(options, job.outputs);
  return job;
}

}  // namespace kvring::cli
