#include "cli/same_job.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "cli/keep_alive.h"

namespace kvring::cli {
namespace {

using Json = nlohmann::json;

Given given_tensor(const char* name, const InputTensor& tensor) {
  std::vector<std::int64_t> shape(tensor.shape().begin() + (tensor.has_batch() ? 0 : 1),
                                  tensor.shape().end());
  const std::string value = fmt::format("{} of shape {} with fingerprint {:016x}", dtype_name(tensor.dtype()),
                                        shape_text(shape), tensor.fingerprint());
  return {name, value, fmt::format("{} ({})", tensor.path(), value)};
}

Given given_sinks(const JobOptions& options, const Job& job) {
  if (!options.sinks) return {"sinks", "none", "none"};
  const std::string value =
      fmt::format("fingerprint {:016x}", XXH3_64bits(job.sinks.data(), job.sinks.size() * sizeof(float)));
  return {"sinks", value, fmt::format("{} ({})", *options.sinks, value)};
}

void compare(const Json& first, const Json& other, std::size_t rank) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::string name = first.at(i).at(0);
    if (other.size() <= i || other[i].at(0) != name)
      throw TransportError(fmt::format(
          "ranks disagree on what they compare: rank 0 and rank {} run different versions of kvring", rank));
    if (other[i].at(1) == first[i].at(1)) continue;
    throw TransportError(fmt::format(
        "ranks disagree on {}: rank 0 has {} and rank {} has {}; {}", name, first[i].at(2).get<std::string>(),
        rank, other[i].at(2).get<std::string>(),
        name.starts_with("-") || name == "the command" ? "start all ranks with the same"
                                                       : "all ranks must read one file, or copies of it"));
  }
}

}  // namespace

Given given_flag(const char* name, const std::optional<std::string>& value) {
  const std::string text = value ? fmt::format("'{}'", *value) : "none";
  return {name, text, text};
}

std::vector<Given> given_files(const char* command, const JobOptions& options, const Job& job) {
  return {{"the command", command, command}, given_tensor("q", job.q),
          given_tensor("k", job.k),          given_tensor("v", job.v),
          given_sinks(options, job),         given_flag("--output", options.output),
          given_flag("--lse", options.lse),  given_flag("--trace", options.trace)};
}

void agree_on_job(Transport& transport, const std::function<std::vector<Given>()>& collect) {
  if (transport.passes_pointers()) return;  // ranks of one process, which was given everything once
  Json mine = Json::array();
  for (const Given& given : keep_alive(transport, collect))
    mine.push_back({given.name, given.value, given.shown});
  // Paths may have any bytes.
  const std::vector<std::string> all = transport.allgather(
      mine.dump(-1, ' ', false, Json::error_handler_t::replace), "the ranks to agree on the job");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) compare(Json::parse(all[0]), Json::parse(all[rank]), rank);
}

}  // namespace kvring::cli
