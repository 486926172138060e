#include "kernel/panel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/repair.h"
#include "kernel/row_finish.h"
#include "kvring/error.h"
#include "kvring/partial.h"

namespace kvring {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

float* references(std::byte* state) { return reinterpret_cast<float*>(state); }
const float* references(const std::byte* state) { return reinterpret_cast<const float*>(state); }

BinnedSum load_sum(const double* sums, std::int64_t element, int lane) {
  const double* hi = sums + 2 * element * kPanelRows + lane;
  return {hi[0], hi[kPanelRows]};
}

void store_sum(double* sums, std::int64_t element, int lane, const BinnedSum& sum) {
  double* hi = sums + 2 * element * kPanelRows + lane;
  hi[0] = sum.hi;
  hi[kPanelRows] = sum.lo;
}

const double* sums_of(const std::byte* state) {
  return reinterpret_cast<const double*>(state + kPanelRows * sizeof(float));
}

void merge_binned(std::byte* into, const std::byte* from, std::int64_t value_dim) {
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const float reference = references(from)[lane];
    if (reference == kNone) continue;
    if (reference > references(into)[lane]) {
      raise_row(into, value_dim, lane, reference);
      references(into)[lane] = reference;
    }
    const double digits = static_cast<double>(references(into)[lane]) - static_cast<double>(reference);
    for (std::int64_t e = 0; e <= value_dim; ++e) {
      BinnedSum theirs = load_sum(sums_of(from), e, lane);
      if (digits > 0) theirs.scale_down(digits);
      BinnedSum ours = load_sum(panel_sums(into), e, lane);
      ours.merge(theirs);
      store_sum(panel_sums(into), e, lane, ours);
    }
  }
}

void merge_online(std::byte* into, const std::byte* from, std::int64_t value_dim) {
  const float* theirs = references(from) + kPanelRows;
  float* ours = panel_online_sums(into);
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const float top = std::max(references(into)[lane], references(from)[lane]);
    const float keep = online_factor(references(into)[lane], top);
    const float take = online_factor(references(from)[lane], top);
    for (std::int64_t i = lane; i < (value_dim + 1) * kPanelRows; i += kPanelRows) {
      ours[i] = online_scaled(ours[i], keep) + online_scaled(theirs[i], take);
    }
    references(into)[lane] = top;
  }
}

}  // namespace

void panel_init(std::byte* state, std::int64_t value_dim, Accumulation accumulation) {
  std::fill_n(references(state), kPanelRows, kNone);
  if (accumulation == Accumulation::kOnline) {
    std::fill_n(panel_online_sums(state), (value_dim + 1) * kPanelRows, 0.0f);
    return;
  }
  const BinnedSum empty = BinnedSum::empty();
  double* sums = panel_sums(state);
  for (std::int64_t e = 0; e <= value_dim; ++e) {
    std::fill_n(sums + 2 * e * kPanelRows, kPanelRows, empty.hi);
    std::fill_n(sums + (2 * e + 1) * kPanelRows, kPanelRows, empty.lo);
  }
}

void raise_row(std::byte* state, std::int64_t value_dim, int lane, float reference) {
  const float old = references(state)[lane];
  if (old == kNone) return;  // nothing in it yet
  const double digits = static_cast<double>(reference) - static_cast<double>(old);
  for (std::int64_t e = 0; e <= value_dim; ++e) {
    BinnedSum sum = load_sum(panel_sums(state), e, lane);
    sum.scale_down(digits);
    store_sum(panel_sums(state), e, lane, sum);
  }
}

void panel_merge(std::byte* into, const std::byte* from, std::int64_t value_dim, Accumulation accumulation) {
  if (accumulation == Accumulation::kReproducible) {
    merge_binned(into, from, value_dim);
  } else {
    merge_online(into, from, value_dim);
  }
}

}  // namespace kvring
