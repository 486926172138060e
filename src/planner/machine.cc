#include "planner/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "kvring/error.h"
#include "planner/catalogue.h"

namespace kvring {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestName = 40;  // that fits into pictures

// An object of the file, with the path to it for messages. Every key must be asked for: one that nobody knows
// is a misspelt one.
class Reader {
 public:
  Reader(const Json& json, std::string path, std::string_view where)
      : json_(json), path_(std::move(path)), where_(where) {
    if (!json_.is_object())
      refuse(path_.empty() ? "the file" : path_.substr(0, path_.size() - 1), "must be an object in braces");
  }

  bool has(const char* key) {
    known_.insert(key);
    return json_.contains(key);
  }

  std::string text(const char* key) {
    known_.insert(key);
    const auto it = json_.find(key);
    if (it == json_.end()) return "";
    if (!it->is_string()) refuse(path_ + key, fmt::format("is {}; it must be text", it->dump()));
    return it->get<std::string>();
  }

  // Short and printable, for tables and pictures.
  std::string name(const char* key) {
    std::string name = text(key);
    const bool printable =
        std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
    if (!printable || name.size() > kLongestName)
      refuse(path_ + key,
             fmt::format("{}; it must be at most {} characters, all printable",
                         printable ? fmt::format("has {} characters", name.size()) : "has control characters",
                         kLongestName));
    return name;
  }

  Reader object(const char* key) {
    if (!has(key)) refuse(path_ + key, "is missing");
    return {json_[key], path_ + key + ".", where_};
  }

  Figure figure(const char* key, double least, double most) {
    const std::string name = path_ + key;
    if (!has(key)) refuse(name, "is missing; it must be a number, or an object with value, kind and source");
    Figure figure;
    const Json* value = &json_[key];
    if (value->is_object()) {
      Reader inner(*value, name + ".", where_);
      figure.kind = inner.text("kind");
      figure.source = inner.text("source");
      if (!inner.has("value")) refuse(name + ".value", "is missing");
      inner.finish();
      value = &inner.json_["value"];
    }
    if (!value->is_number()) refuse(name, fmt::format("is {}; it must be a number", value->dump()));
    figure.value = value->get<double>();
    if (!(figure.value >= least && figure.value <= most))
      refuse(name, fmt::format("is {}; it must be {:g} to {:g}", value->dump(), least, most));
    return figure;
  }

  Figure count(const char* key, double most) {
    Figure figure = this->figure(key, 1, most);
    if (figure.value != std::floor(figure.value))
      refuse(path_ + key, fmt::format("is {}; it must be a whole number", figure.value));
    return figure;
  }

  // Throws if there is a key that was not asked for.
  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      if (!known_.contains(key))
        refuse(path_ + key,
               fmt::format("is no key of a machine; here may stand {}", fmt::join(known_, ", ")));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& why) const {
    throw InputFile(fmt::format("{}: {} {}", where_, what, why));
  }

  const Json& json_;
  std::string path_;
  std::string_view where_;
  std::set<std::string> known_;
};

// Bounds far outside any machine: they keep every later product finite.
constexpr double kMost = 1e24;
constexpr double kLeastRate = 1;  // bytes or operations per second

Link read_link(Reader& reader) {
  Link link{reader.figure("bytes_per_s", kLeastRate, kMost), reader.figure("latency_s", 0, 3600), {}, {}};
  if (reader.has("computing_s_per_byte"))
    link.computing_s_per_byte = reader.figure("computing_s_per_byte", 0, 1);
  if (reader.has("computing_bytes_per_s"))
    link.computing_bytes_per_s = reader.figure("computing_bytes_per_s", kLeastRate, link.bytes_per_s.value);
  return link;
}

Machine read_machine(const Json& json, std::string_view where) {
  Reader reader(json, "", where);
  Machine machine;
  machine.name = reader.name("name");
  machine.description = reader.text("description");
  Reader flops = reader.object("flops_per_s");
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::string name(dtype_name(dtype));
    if (flops.has(name.c_str()))
      machine.flops_per_s[static_cast<std::size_t>(dtype)] = flops.figure(name.c_str(), kLeastRate, kMost);
  }
  flops.finish();
  machine.memory_bytes = reader.figure("memory_bytes", 1, 0x1p62);
  machine.memory_bytes_per_s = reader.figure("memory_bytes_per_s", kLeastRate, kMost);
  if (reader.has("calls")) {
    Reader calls = reader.object("calls");
    machine.calls = CallRates{calls.figure("keys_bytes_per_s", kLeastRate, kMost),
                              calls.figure("rows_bytes_per_s", kLeastRate, kMost)};
    calls.finish();
  }
  machine.ranks_per_node = reader.count("ranks_per_node", 1 << 20);
  machine.threads = reader.count("threads", 4096);
  Reader within = reader.object("within_node");
  machine.within_node = read_link(within);
  if (within.has("links")) machine.within_node_links = within.figure("links", 1e-6, 1 << 20);
  within.finish();
  if (reader.has("between_nodes")) {
    Reader between = reader.object("between_nodes");
    machine.between_nodes = NodeLink{read_link(between), between.count("links", 1 << 20)};
    between.finish();
  }
  reader.finish();
  return machine;
}

Json parse_json(const std::string& text, std::string_view where) {
  try {
    return Json::parse(text);
  } catch (const Json::out_of_range&) {
    throw InputFile(
        fmt::format("{}: a number is too large to be read; figures are at most {:g}", where, kMost));
  } catch (const Json::parse_error& error) {
    throw InputFile(fmt::format("{}: not JSON at byte {}; a machine is an object like those of the catalogue",
                                where, error.byte));
  }
}

}  // namespace

double Machine::flops(DType dtype) const {
  if (const auto& figure = flops_per_s[static_cast<std::size_t>(dtype)]) return figure->value;
  std::vector<std::string_view> known;
  for (const DType other : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (flops_per_s[static_cast<std::size_t>(other)]) known.push_back(dtype_name(other));
  }
  throw InvalidArgument(fmt::format("machine {} has no rate for dtype {}; it has {}", name, dtype_name(dtype),
                                    known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

const std::vector<Machine>& machine_catalogue() {
  static const std::vector<Machine> kCatalogue = [] {
    std::vector<Machine> machines;
    const Json catalogue = parse_json(kCatalogueText, "the catalogue");
    for (const Json& json : catalogue.at("machines")) machines.push_back(read_machine(json, "the catalogue"));
    return machines;
  }();
  return kCatalogue;
}

Machine parse_machine(const std::string& text, std::string_view where) {
  return read_machine(parse_json(text, where), where);
}

Machine find_machine(const std::string& name_or_file) {
  constexpr std::uintmax_t kLongestFile = 1 << 20;
  std::vector<std::string> names;
  for (const Machine& machine : machine_catalogue()) {
    if (machine.name == name_or_file) return machine;
    names.push_back(machine.name);
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(name_or_file, error))
    throw InvalidArgument(
        fmt::format("--machine is '{}', which is no machine of the catalogue ({}) and no file", name_or_file,
                    fmt::join(names, ", ")));
  if (std::filesystem::file_size(name_or_file, error) > kLongestFile)
    throw InputFile(fmt::format("{}: longer than {} bytes; a machine is a short JSON object", name_or_file,
                                kLongestFile));
  std::ifstream file(name_or_file, std::ios::binary);
  if (!file) throw InputFile(fmt::format("{}: cannot be read", name_or_file));
  Machine machine = parse_machine({std::istreambuf_iterator<char>(file), {}}, name_or_file);
  if (machine.name.empty())
    machine.name = std::filesystem::path(name_or_file).stem().string().substr(0, kLongestName);
  return machine;
}

}  // namespace kvring
