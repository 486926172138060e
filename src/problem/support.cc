#include "problem/support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvring/error.h"

namespace kvring {
namespace {

const std::vector<std::string> kMasks = {"full", "causal", "window", "documents"};
const std::vector<std::string> kDTypes = {"f32", "bf16", "f16"};
const std::vector<std::string> kFeatures = {"sinks",     "softcap", "gqa",        "cross-attention",
                                            "value-dim", "online",  "cut-tokens", "custom-layout"};

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

[[noreturn]] void refuse(const SupportRow& row, const std::string& what) {
  throw Unsupported(fmt::format("schedule {} with a {} mask does not support {}; {}", row.schedule, row.mask,
                                what, row.instead));
}

}  // namespace

const char* schedule_name(ScheduleKind kind) noexcept {
  switch (kind) {
    case ScheduleKind::kRing:
      return "ring";
    case ScheduleKind::kAllGather:
      return "all-gather";
    case ScheduleKind::kPassQ:
      return "pass-q";
    case ScheduleKind::kUlysses:
      return "ulysses";
    case ScheduleKind::kTree:
      return "tree";
  }
  return "?";
}

std::vector<SupportRow> support_table() {
  std::vector<SupportRow> table;
  for (const ScheduleKind schedule : kSchedules) {
    for (const std::string& mask : kMasks)
      table.push_back({schedule_name(schedule), mask, kDTypes, kFeatures, "see kvring info --support"});
  }
  return table;
}

std::vector<std::string> support_features() { return kFeatures; }

SupportQuery support_query(const Problem& p, const Layouts& layouts, ScheduleKind schedule) {
  SupportQuery query{schedule_name(schedule), {}, {}, {}};
  const auto add = [](std::vector<std::string>& list, bool needed, const char* name) {
    if (needed) list.emplace_back(name);
  };
  add(query.masks, p.causal, "causal");
  add(query.masks, p.window_left >= 0 || p.window_right >= 0, "window");
  add(query.masks, !p.cu_seqlens_q.empty(), "documents");
  add(query.masks, query.masks.empty(), "full");
  for (DType dtype : {p.q_dtype, p.kv_dtype, p.out_dtype}) query.dtypes.emplace_back(dtype_name(dtype));
  const auto either = [&](auto test) { return test(layouts.q) || test(layouts.kv); };
  add(query.features, p.has_sinks, "sinks");
  add(query.features, p.softcap > 0, "softcap");
  add(query.features, p.q_heads != p.kv_heads, "gqa");
  add(query.features, p.q_len != p.kv_len || p.cu_seqlens_q != p.cu_seqlens_kv, "cross-attention");
  add(query.features, p.value_dim != p.head_dim, "value-dim");
  add(query.features, p.accumulation == Accumulation::kOnline, "online");
  add(query.features, either([](const Layout& l) { return !l.tile_aligned; }), "cut-tokens");
  add(query.features, either([](const Layout& l) { return l.spec.kind == LayoutKind::kCustom; }),
      "custom-layout");
  return query;
}

void require_listed(const std::vector<SupportRow>& table, const SupportQuery& query) {
  for (const std::string& mask : query.masks) {
    const auto row = std::find_if(table.begin(), table.end(), [&](const SupportRow& r) {
      return r.schedule == query.schedule && r.mask == mask;
    });
    if (row == table.end())
      throw Unsupported(fmt::format("schedule {} does not support a {} mask; see kvring info --support",
                                    query.schedule, mask));
    for (const std::string& dtype : query.dtypes) {
      if (!contains(row->dtypes, dtype)) refuse(*row, "dtype " + dtype);
    }
    for (const std::string& feature : query.features) {
      if (!contains(row->features, feature)) refuse(*row, feature);
    }
  }
}

void require_supported(const Problem& problem, const Layouts& layouts, ScheduleKind schedule) {
  require_listed(support_table(), support_query(problem, layouts, schedule));
}

ScheduleKind parse_schedule(std::string_view name) {
  std::vector<std::string> names;
  for (const ScheduleKind schedule : kSchedules) {
    if (name == schedule_name(schedule)) return schedule;
    names.emplace_back(schedule_name(schedule));
  }
  throw InvalidArgument(fmt::format("schedule '{}' does not exist; use {}", name, fmt::join(names, ", ")));
}

}  // namespace kvring
