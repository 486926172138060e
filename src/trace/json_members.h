// Members of JSON that somebody may have edited, each checked. What throws InputFile here says what is wrong,
// without the file's name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "kvring/error.h"
#include "kvring/operation.h"

namespace kvring {

using Json = nlohmann::ordered_json;

inline constexpr std::int64_t kMostRanks = std::int64_t{1}
                                           << 16;  // of a file; a list of them must fit memory
inline constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(const std::string& what);
// A part of a foreign value, for a message.
std::string shown(const Json& value);

const Json& member(const Json& object, const char* key);
std::int64_t integer(const Json& object, const char* key, std::int64_t least, std::int64_t most);
double real(const Json& object, const char* key, double least, double most);
std::string text(const Json& object, const char* key);
bool boolean(const Json& object, const char* key);
const Json& list(const Json& object, const char* key);
Operation::What operation_kind(const Json& object);  // "what"
Cargo cargo(const Json& object);                     // "cargo"

// Gives what the file holds to `understand` and returns what that returns. Throws InputFile with the file's
// name and, where it holds no JSON, line and column. `kind` is what it should be: "a trace of kvring".
template <typename Understand>
auto read_json_file(const std::string& path, const char* kind, Understand understand) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputFile(fmt::format("{}: cannot be opened", path));
  try {
    return understand(Json::parse(file));
  } catch (const std::ios_base::failure&) {
    throw InputFile(fmt::format("{}: cannot be read; is it a file?", path));
  } catch (const InputFile& error) {
    throw InputFile(fmt::format("{}: not {}: {}", path, kind, error.what()));
  } catch (const Json::exception& error) {
    throw InputFile(fmt::format("{}: not {}: {}", path, kind, error.what()));
  }
}

}  // namespace kvring
