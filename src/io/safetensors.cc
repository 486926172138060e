#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "kvring/error.h"

namespace kvring {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLongestJson = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

std::string_view dtype_text(DType dtype) {
  if (dtype == DType::kF32) return "F32";
  return dtype == DType::kF16 ? "F16" : "BF16";
}

std::optional<DType> dtype_of(std::string_view text) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (text == dtype_text(dtype)) return dtype;
  }
  return std::nullopt;
}

// The library keeps the last of two equal keys and nests without limit; the format allows neither.
class StructureCheck {
 public:
  explicit StructureCheck(const std::string& path) : path_(path) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    // 0: the header, 1: a tensor, 2: its shape or data_offsets.
    if ((event == Event::object_start || event == Event::array_start) && depth > 2)
      throw InputFile(fmt::format("{}: .safetensors header nests deeper than a tensor's shape", path_));
    if (event == Event::object_start && depth == 1) keys_.clear();
    if (event != Event::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (depth == 1 && !names_.insert(key).second)
      throw InputFile(fmt::format("{}: tensor {} appears twice in the header", path_, printable(key)));
    if (depth == 2 && !keys_.insert(key).second)
      throw InputFile(
          fmt::format("{}: key {} appears twice in one entry of the header", path_, printable(key)));
    return true;
  }

 private:
  const std::string& path_;
  std::set<std::string> names_;
  std::set<std::string> keys_;  // of the entry being read
};

// One tensor's entry, checked field by field.
class EntryParser {
 public:
  EntryParser(const std::string& path, const std::string& name, const Json& entry)
      : where_(fmt::format("{}: tensor {}", path, printable(name))), entry_(entry) {}

  TensorInfo parse(std::int64_t data_start, std::int64_t data_bytes) const {
    if (!entry_.is_object()) fail("an object with dtype, shape and data_offsets", entry_);
    for (const auto& [key, value] : entry_.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        throw InputFile(fmt::format("{}: unknown key {}; expected dtype, shape and data_offsets", where_,
                                    printable(key)));
    }
    const Json& dtype = field("dtype");
    if (!dtype.is_string()) fail("dtype to be a string", dtype);
    TensorInfo info;
    info.dtype_text = dtype.get<std::string>();
    info.dtype = dtype_of(info.dtype_text);
    info.shape = integers("shape");

    const auto offsets = integers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes)
      fail(
          fmt::format("data_offsets [begin, end] with 0 <= begin <= end <= {}, the bytes of data in the file "
                      "(truncated?)",
                      data_bytes),
          entry_["data_offsets"]);
    info.offset = data_start + offsets[0];
    info.bytes = offsets[1] - offsets[0];
    if (info.dtype) check_size(info);
    return info;
  }

 private:
  [[noreturn]] void fail(std::string_view expected, const Json& found) const {
    throw InputFile(fmt::format("{}: expected {}, found {}", where_, expected,
                                printable(found.dump(-1, ' ', true, Json::error_handler_t::replace))));
  }

  const Json& field(const char* key) const {
    const auto it = entry_.find(key);
    if (it == entry_.end()) throw InputFile(fmt::format("{}: has no {}", where_, key));
    return *it;
  }

  std::vector<std::int64_t> integers(const char* key) const {
    const Json& array = field(key);
    if (!array.is_array()) fail(fmt::format("{} to be an array of integers", key), array);
    std::vector<std::int64_t> values;
    values.reserve(array.size());
    for (const Json& item : array) {
      if (!item.is_number_unsigned() ||
          item.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        fail(fmt::format("{} to hold integers from 0 to 2^63 - 1", key), item);
      values.push_back(item.get<std::int64_t>());
    }
    return values;
  }

  void check_size(const TensorInfo& info) const {
    const auto bytes = checked_bytes(info.shape, static_cast<std::int64_t>(dtype_bytes(*info.dtype)));
    if (!bytes)
      throw InputFile(fmt::format("{}: shape {} is more than 2^63 - 1 bytes; data_offsets give it {}", where_,
                                  shape_text(info.shape), info.bytes));
    if (*bytes != info.bytes)
      throw InputFile(fmt::format("{}: shape {} of {} needs {} bytes, data_offsets give it {}", where_,
                                  shape_text(info.shape), info.dtype_text, *bytes, info.bytes));
  }

  std::string where_;
  const Json& entry_;
};

void check_metadata(const Json& metadata, const std::string& path) {
  const bool good = metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                                        [](const Json& v) { return v.is_string(); });
  if (!good) throw InputFile(fmt::format("{}: {} is not an object of strings", path, kMetadata));
}

// Laid end to end, the tensors must cover the data exactly.
void check_coverage(const std::map<std::string, TensorInfo>& tensors, std::int64_t data_start,
                    std::int64_t file_bytes, const std::string& path) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.offset, a->second.bytes) < std::pair(b->second.offset, b->second.bytes);
  });
  std::int64_t end = data_start;
  for (const Entry* entry : order) {
    const std::int64_t begin = entry->second.offset;
    if (begin != end)
      throw InputFile(
          fmt::format("{}: tensor {}: data begins at {}, {} the tensor before it, which ends at {}", path,
                      printable(entry->first), begin - data_start,
                      begin < end ? "overlapping" : "leaving a hole after", end - data_start));
    end += entry->second.bytes;
  }
  if (end != file_bytes)
    throw InputFile(fmt::format("{}: {} trailing bytes after the last tensor, which ends at byte {} of {}",
                                path, file_bytes - end, end, file_bytes));
}

}  // namespace

std::int64_t safetensors_header_bytes(std::string_view prefix, std::int64_t file_bytes,
                                      const std::string& path) {
  if (prefix.size() < 8)
    throw InputFile(
        fmt::format("{}: truncated .safetensors file: {} bytes, expected at least 10", path, file_bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof length);
  if (length > std::uint64_t{kLongestJson})
    throw InputFile(
        fmt::format("{}: .safetensors header of {} bytes; expected at most {}", path, length, kLongestJson));
  if (static_cast<std::int64_t>(length) > file_bytes - 8)
    throw InputFile(
        fmt::format("{}: truncated .safetensors file: a header of {} bytes does not fit its {} bytes", path,
                    length, file_bytes));
  return 8 + static_cast<std::int64_t>(length);
}

std::map<std::string, TensorInfo> parse_safetensors(std::string_view header, std::int64_t file_bytes,
                                                    const std::string& path) {
  const std::string_view text = header.substr(8);
  if (!text.starts_with('{'))
    throw InputFile(
        fmt::format("{}: .safetensors header: expected '{{', found {}", path, printable(text.substr(0, 16))));
  // The JSON library takes a NUL for the end of the text and would not look at what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    throw InputFile(
        fmt::format("{}: .safetensors header: byte {} is NUL; expected JSON padded with spaces", path, nul));
  Json root;
  try {
    root = Json::parse(text.begin(), text.end(), StructureCheck(path));
  } catch (const Json::exception& error) {
    throw InputFile(
        fmt::format("{}: .safetensors header is not JSON: {}", path, printable(error.what(), 300)));
  }
  const auto data_start = static_cast<std::int64_t>(header.size());
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : root.items()) {
    if (name == kMetadata) {
      check_metadata(entry, path);
    } else {
      tensors.emplace(name, EntryParser(path, name, entry).parse(data_start, file_bytes - data_start));
    }
  }
  check_coverage(tensors, data_start, file_bytes, path);
  return tensors;
}

std::string safetensors_header(const std::vector<TensorSpec>& tensors) {
  std::vector<TensorSpec> order = tensors;
  std::stable_sort(order.begin(), order.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  std::int64_t end = 0;
  for (const TensorSpec& tensor : order) {
    const auto bytes = checked_bytes(tensor.shape, static_cast<std::int64_t>(dtype_bytes(tensor.dtype)));
    const std::int64_t begin = end;
    if (!bytes || __builtin_add_overflow(begin, *bytes, &end))
      throw InvalidArgument(fmt::format("tensor {} of shape {} takes the file past 2^63 - 1 bytes",
                                        printable(tensor.name), shape_text(tensor.shape)));
    root[tensor.name] = {
        {"dtype", dtype_text(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string json = root.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

}  // namespace kvring
