#include "kernel/tile.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/amx.h"
#include "kernel/blocks.h"
#include "kernel/panel.h"
#include "kernel/repair.h"
#include "kernel/scalar_math.h"
#include "kvring/error.h"

// AVX3_DL adds nothing the kernel uses over AVX3, and targets without fused multiply-add are only kept as the
// baseline. SVE has no fixed vector arrays; Arm runs NEON.
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3_DL | HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/tile.cc"
#include <hwy/foreach_target.h>

#include "kernel/finish-inl.h"
#include "kernel/tile-inl.h"

#if HWY_ONCE
namespace kvring {

HWY_EXPORT(attend_tile_target);
HWY_EXPORT(tile_phase_target);
HWY_EXPORT(panel_finish_target);

void attend_tile(const TileShape& shape, const PackedTile& tile, std::span<const PanelJob> panels,
                 TileScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(attend_tile_target)(shape, tile, panels, scratch);
}

void tile_phase(TilePhase phase, const TileShape& shape, const PackedTile& tile, const PanelJob& panel,
                TileScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(tile_phase_target)(phase, shape, tile, panel, scratch);
}

namespace {

// From [value_dim][48] to rows.
template <typename T, typename Narrow>
void store_rows(std::span<const FinishRow> rows, std::int64_t value_dim, const float* from,
                const Narrow& narrow) {
  for (const FinishRow& row : rows) {
    T* to = static_cast<T*>(row.data) + row.offset;
    for (std::int64_t d = 0; d < value_dim; ++d) to[d] = narrow(from[d * kPanelRows]);
    ++from;
  }
}

}  // namespace

void panel_finish(const std::byte* state, std::int64_t value_dim, Accumulation accumulation, DType dtype,
                  std::span<const FinishRow> rows, float* lse, float* scratch) {
  const auto* sums = state + kPanelRows * sizeof(float);
  HWY_DYNAMIC_DISPATCH(panel_finish_target)
  ({reinterpret_cast<const float*>(state), reinterpret_cast<const double*>(sums),
    reinterpret_cast<const float*>(sums), value_dim, accumulation},
   rows, dtype, lse, scratch);
  switch (dtype) {
    case DType::kF32:
      return store_rows<float>(rows, value_dim, scratch, [](float x) { return x; });
    case DType::kBF16:  // exact in it, or NaN, whose upper half is one too
      return store_rows<std::uint16_t>(rows, value_dim, scratch, [](float x) {
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
      });
    case DType::kF16:
      return store_rows<std::uint16_t>(rows, value_dim, scratch, float_to_f16);
  }
}

namespace {

struct Target {
  decltype(hwy::SupportedTargets()) bit;
  std::string name;
  bool matrix_unit = false;
};

// Compiled in and supported here, best first: Highway gives better targets lower bits.
std::vector<Target> usable_targets() {
  std::vector<Target> targets;
  const auto usable = hwy::SupportedTargets() & HWY_TARGETS;
  for (int i = 0; i < 63; ++i) {
    const auto bit = static_cast<decltype(hwy::SupportedTargets())>(1) << i;
    if (!(usable & bit)) continue;
#if HWY_ARCH_X86
    if (bit == HWY_AVX3 && amx_supported()) targets.push_back({bit, "AMX", true});
#endif
    targets.push_back({bit, hwy::TargetName(bit)});
  }
  return targets;
}

}  // namespace

std::int64_t TileScratch::bytes(const TileShape& shape) { return ScratchSizes(shape).bytes(); }

TileScratch::TileScratch(const TileShape& shape) : memory_(bytes(shape)) {
  const ScratchSizes sizes(shape);
  auto* next = reinterpret_cast<float*>(memory_.data());
  const auto take = [&next](std::int64_t count) {
    float* p = next;
    next += count;
    return p;
  };
  k = take(sizes.k);
  v = take(sizes.v);
  q = take(sizes.q);
  scores = take(sizes.scores);
  weights = reinterpret_cast<std::uint16_t*>(take(sizes.weights));
  partial = take(sizes.partial);
  row_max = take(kPanelRows);
  tile_max = take(kPanelRows);
  factor = take(kPanelRows);
  shift = reinterpret_cast<std::int32_t*>(take(kPanelRows));
}

LogitTransform make_logit_transform(const Problem& problem) {
  const double scale = problem.scale();
  if (problem.softcap == 0) return {static_cast<float>(scale * kLog2E), 0.0f};
  return {static_cast<float>(scale / problem.softcap), static_cast<float>(problem.softcap * kLog2E)};
}

std::vector<std::string> kernel_isas() {
  std::vector<std::string> names;
  for (const Target& target : usable_targets()) names.push_back(target.name);
  return names;
}

void force_kernel_isa(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  amx_switch(true);
  if (name.empty()) return;
  for (const Target& target : usable_targets()) {
    if (target.name != name) continue;
    hwy::SetSupportedTargetsForTest(target.bit);
    amx_switch(target.matrix_unit);
    hwy::GetChosenTarget().DeInit();
    return;
  }
  throw InvalidArgument("instruction set '" + name + "' is not compiled in or not supported by this machine");
}

}  // namespace kvring
#endif  // HWY_ONCE
