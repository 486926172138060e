// Shards, and moving their rows between a rank's tensors and whole ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kvring/error.h"
#include "kvring/layout.h"

namespace kvring {
namespace {

// `rows` consecutive tokens of all heads of one batch entry.
template <typename Void>
struct Rows {
  const BasicTensorView<Void>& tensor;
  std::int64_t batch;
  std::int64_t first;

  auto bytes(std::int64_t s, std::int64_t h) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(tensor.data) +
           tensor.offset(batch, first + s, h) * static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  }
  bool heads_dense() const { return tensor.shape[2] == 1 || tensor.stride[2] == tensor.shape[3]; }
  bool tokens_dense() const { return heads_dense() && tensor.stride[1] == tensor.shape[2] * tensor.shape[3]; }
};

void copy_rows(const Rows<const void>& from, const Rows<void>& to, std::int64_t rows) {
  const std::int64_t heads = from.tensor.shape[2];
  const std::size_t head_bytes =
      static_cast<std::size_t>(from.tensor.shape[3]) * dtype_bytes(from.tensor.dtype);
  const std::size_t token_bytes = static_cast<std::size_t>(heads) * head_bytes;
  if (from.tokens_dense() && to.tokens_dense()) {
    std::memcpy(to.bytes(0, 0), from.bytes(0, 0), static_cast<std::size_t>(rows) * token_bytes);
    return;
  }
  const bool heads_dense = from.heads_dense() && to.heads_dense();
  for (std::int64_t s = 0; s < rows; ++s) {
    if (heads_dense) {
      std::memcpy(to.bytes(s, 0), from.bytes(s, 0), token_bytes);
    } else {
      for (std::int64_t h = 0; h < heads; ++h) std::memcpy(to.bytes(s, h), from.bytes(s, h), head_bytes);
    }
  }
}

template <typename A, typename B>
void check_shapes(const BasicTensorView<A>& whole, const Shard& shard, const BasicTensorView<B>& local) {
  if (whole.dtype != local.dtype)
    throw InvalidArgument(fmt::format("the whole tensor is {} and the shard {}; they must have one dtype",
                                      dtype_name(whole.dtype), dtype_name(local.dtype)));
  const std::array<std::int64_t, 4> expected = {whole.shape[0], shard.tokens(), whole.shape[2],
                                                whole.shape[3]};
  if (local.shape != expected)
    throw InvalidArgument(fmt::format(
        "the shard tensor has shape ({}, {}, {}, {}); it must be ({}, {}, {}, {})", local.shape[0],
        local.shape[1], local.shape[2], local.shape[3], expected[0], expected[1], expected[2], expected[3]));
  for (const Range& range : shard.ranges()) {
    if (range.begin < 0 || range.end > whole.shape[1])
      throw InvalidArgument(fmt::format("the shard holds positions {} to {}; the whole tensor has {} tokens",
                                        range.begin, range.end - 1, whole.shape[1]));
  }
}

// Calls copy(batch, range, first local row) for every run of rows.
template <typename Copy>
void for_each_run(const ConstTensorView& local, const Shard& shard, Copy copy) {
  if (local.elements() == 0) return;  // data may be null
  for (std::int64_t b = 0; b < local.shape[0]; ++b) {
    for (std::size_t i = 0; i < shard.ranges().size(); ++i) copy(b, shard.ranges()[i], shard.offsets()[i]);
  }
}

}  // namespace

Shard::Shard(const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    if (range.size() <= 0)
      throw InvalidArgument(
          fmt::format("a shard has the range {} to {}; ranges must not be empty", range.begin, range.end));
    if (!ranges_.empty() && ranges_.back().end == range.begin) {
      ranges_.back().end = range.end;
      offsets_.back() += range.size();
    } else {
      ranges_.push_back(range);
      offsets_.push_back(offsets_.back() + range.size());
    }
  }
}

std::int64_t Shard::position(std::int64_t local) const noexcept {
  const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), local);
  const auto i = static_cast<std::size_t>(next - offsets_.begin() - 1);
  return ranges_[i].begin + (local - offsets_[i]);
}

void shard(const ConstTensorView& whole, const Shard& shard, const TensorView& local) {
  check_shapes(whole, shard, local);
  for_each_run(as_const(local), shard, [&](std::int64_t b, const Range& range, std::int64_t first) {
    copy_rows({whole, b, range.begin}, {local, b, first}, range.size());
  });
}

void unshard(const ConstTensorView& local, const Shard& shard, const TensorView& whole) {
  check_shapes(whole, shard, local);
  for_each_run(local, shard, [&](std::int64_t b, const Range& range, std::int64_t first) {
    copy_rows({local, b, first}, {whole, b, range.begin}, range.size());
  });
}

}  // namespace kvring
