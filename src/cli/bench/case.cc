#include "cli/bench/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kvring/error.h"
#include "mask/mask.h"

namespace kvring::cli {
namespace {

constexpr std::int64_t kMostKeys = std::int64_t{1} << 28;
constexpr std::int64_t kMostGroup = 1024;
constexpr std::int64_t kMostThreads = 4096;

// Takes the name apart from the left, and knows it whole for messages.
class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name), rest_(name) {}

  bool empty() const { return rest_.empty(); }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::int64_t number(const char* what, std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 1 || value > most)
      refuse(fmt::format("{} a number from 1 to {}, {}", place(), most, what));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  void expect(std::string_view word, const char* what) {
    if (!take(word)) refuse(fmt::format("{} {}, {}", place(), word, what));
  }
  std::string_view rest() const { return rest_; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(
        fmt::format("--case is '{}': {}; a case is DTYPE-MASK-d<dim>-n<keys>, such as f32-causal-d128-n8192, "
                    "f32-full-d192v128-n8192 or bf16-decode4-d128-n131072-gqa8-t2",
                    name_, why));
  }

 private:
  std::string place() const {
    return rest_.empty() ? "it ends before" : fmt::format("'{}' should begin with", rest_);
  }

  std::string_view name_, rest_;
};

DType read_dtype(Reader& reader) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (reader.take(fmt::format("{}-", dtype_name(dtype)))) return dtype;
  }
  reader.refuse("it must begin with f32-, bf16- or f16-");
}

void read_mask(Reader& reader, KernelCase& c) {
  using Mask = KernelCase::Mask;
  if (reader.take("full")) {
    c.mask = Mask::kFull;
  } else if (reader.take("causal")) {
    c.mask = Mask::kCausal;
  } else if (reader.take("decode")) {
    c.mask = Mask::kDecode;
    c.mask_size = reader.number("the queries of decode", kMostKeys);
  } else if (reader.take("window")) {
    c.mask = Mask::kWindow;
    c.mask_size = reader.number("the width of window", kMostKeys);
  } else {
    reader.refuse("after the dtype comes full, causal, decode<queries> or window<width>");
  }
}

void read_suffix(Reader& reader, KernelCase& c) {
  const auto once = [&](bool first, const char* what) {
    if (!first) reader.refuse(fmt::format("it says {} twice", what));
  };
  if (reader.take("-gqa")) {
    once(c.group == 1, "gqa");
    c.group = reader.number("query heads on a KV head", kMostGroup);
    if (c.group == 1) reader.refuse("gqa1 is the case without gqa");
  } else if (reader.take("-online")) {
    once(!c.online, "online");
    c.online = true;
  } else if (reader.take("-t")) {
    once(c.threads == 0, "threads");
    c.threads = static_cast<int>(reader.number("threads", kMostThreads));
  } else {
    reader.refuse(fmt::format("'{}' is none of -gqa<heads>, -online, -t<threads>", reader.rest()));
  }
}

}  // namespace

KernelCase parse_case(std::string_view name, int threads) {
  Reader reader(name);
  KernelCase c;
  c.threads = 0;
  c.dtype = read_dtype(reader);
  read_mask(reader, c);
  constexpr std::int64_t kMostDim = 256;
  reader.expect("-d", "the dim of q and k");
  c.head_dim = c.value_dim = reader.number("the dim", kMostDim);
  if (reader.take("v")) c.value_dim = reader.number("the dim of v", kMostDim);
  reader.expect("-n", "the number of keys");
  c.keys = reader.number("the number of keys", kMostKeys);
  while (!reader.empty()) read_suffix(reader, c);
  if (c.threads == 0) c.threads = threads;
  if (c.mask == KernelCase::Mask::kDecode && c.mask_size > c.keys)
    reader.refuse(fmt::format("{} queries are more than {} keys", c.mask_size, c.keys));
  return c;
}

std::string mask_name(const KernelCase& c) {
  switch (c.mask) {
    case KernelCase::Mask::kFull:
      return "full";
    case KernelCase::Mask::kCausal:
      return "causal";
    case KernelCase::Mask::kDecode:
      return fmt::format("decode{}", c.mask_size);
    case KernelCase::Mask::kWindow:
      return fmt::format("window{}", c.mask_size);
  }
  throw Internal("a case without a mask");
}

std::string case_name(const KernelCase& c) {
  std::string name = fmt::format("{}-{}-d{}", dtype_name(c.dtype), mask_name(c), c.head_dim);
  if (c.value_dim != c.head_dim) name += fmt::format("v{}", c.value_dim);
  name += fmt::format("-n{}", c.keys);
  if (c.group > 1) name += fmt::format("-gqa{}", c.group);
  if (c.online) name += "-online";
  if (c.threads > 1) name += fmt::format("-t{}", c.threads);
  return name;
}

Problem case_problem(const KernelCase& c, std::int64_t kv_heads) {
  Problem p;
  p.q_len = c.mask == KernelCase::Mask::kDecode ? c.mask_size : c.keys;
  p.kv_len = c.keys;
  p.kv_heads = kv_heads;
  p.q_heads = kv_heads * c.group;
  p.head_dim = c.head_dim;
  p.value_dim = c.value_dim;
  p.q_dtype = p.kv_dtype = p.out_dtype = c.dtype;
  p.causal = c.mask != KernelCase::Mask::kFull;
  if (c.mask == KernelCase::Mask::kWindow) p.window_left = c.mask_size - 1;
  if (c.online) p.accumulation = Accumulation::kOnline;
  return p;
}

double needed_flops(const Problem& problem) {
  const Mask mask(problem);
  std::int64_t pairs = 0;
  for (std::int64_t q = 0; q < problem.q_len; ++q) pairs += mask.visible(q).size();
  return 2.0 * static_cast<double>(pairs) * static_cast<double>(problem.head_dim + problem.value_dim) *
         static_cast<double>(problem.batch * problem.q_heads);
}

double kv_bytes(const Problem& p) {
  return static_cast<double>(p.batch * p.kv_len * p.kv_heads) *
         static_cast<double>(p.head_dim + p.value_dim) * static_cast<double>(dtype_bytes(p.kv_dtype));
}

std::optional<KernelCase::Suffix> last_suffix(const KernelCase& c) {
  if (c.threads > 1) return KernelCase::Suffix::kThreads;
  if (c.online) return KernelCase::Suffix::kOnline;
  if (c.group > 1) return KernelCase::Suffix::kGroup;
  return {};
}

KernelCase without(KernelCase c, KernelCase::Suffix suffix) {
  switch (suffix) {
    case KernelCase::Suffix::kThreads:
      c.threads = 1;
      break;
    case KernelCase::Suffix::kOnline:
      c.online = false;
      break;
    case KernelCase::Suffix::kGroup:
      c.group = 1;
      break;
  }
  return c;
}

}  // namespace kvring::cli
