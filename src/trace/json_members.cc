#include "trace/json_members.h"

#include <array>

namespace kvring {

using What = Operation::What;

void refuse(const std::string& what) { throw InputFile(what); }

std::string shown(const Json& value) {
  constexpr std::size_t kLongestShown = 40;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object())
    refuse(fmt::format("is {} where an object with \"{}\" must be", shown(object), key));
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("has no \"{}\"", key));
  return *found;
}

std::int64_t integer(const Json& object, const char* key, std::int64_t least, std::int64_t most) {
  const Json& value = member(object, key);
  // What lies above int64 is stored unsigned.
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most));
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    refuse(fmt::format("has \"{}\" {}; it must be a whole number from {} to {}", key, shown(value), least,
                       most));
  return value.get<std::int64_t>();
}

double real(const Json& object, const char* key, double least, double most) {
  const Json& value = member(object, key);
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
    refuse(fmt::format("has \"{}\" {}; it must be a number from {} to {}", key, shown(value), least, most));
  return value.get<double>();
}

std::string text(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_string()) refuse(fmt::format("has \"{}\" {}; it must be a string", key, shown(value)));
  return value.get<std::string>();
}

bool boolean(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_boolean()) refuse(fmt::format("has \"{}\" {}; it must be true or false", key, shown(value)));
  return value.get<bool>();
}

What operation_kind(const Json& args) {
  constexpr std::array kAll = {What::kSend,     What::kReceive,      What::kAttend,
                               What::kPack,     What::kMerge,        What::kFinish,
                               What::kWaitLate, What::kWaitTransfer, What::kWaitSend};
  const std::string name = text(args, "what");
  for (const What what : kAll)
    if (name == operation_name(what)) return what;
  refuse(fmt::format(
      "has \"what\" {}; it must be send, receive, attend, pack, merge, finish, wait_late, wait_transfer "
      "or wait_send",
      shown(member(args, "what"))));
}

// Traces of before there were other kinds have none.
Cargo cargo(const Json& args) {
  if (!args.contains("cargo")) return Cargo::kBlock;
  const std::string name = text(args, "cargo");
  for (const Cargo cargo : kCargos)
    if (name == cargo_name(cargo)) return cargo;
  refuse(fmt::format("has \"cargo\" {}; it must be block, queries, partials or rows", shown(args["cargo"])));
}

const Json& list(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_array()) refuse(fmt::format("has \"{}\" {}; it must be a list", key, shown(value)));
  return value;
}

}  // namespace kvring
