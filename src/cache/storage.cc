#include "cache/storage.h"

#include <algorithm>
#include <cstring>

namespace kvring {

LayerStorage::Side LayerStorage::make_side(const Problem& p, std::int64_t dim) {
  const std::array<std::int64_t, 4> shape{p.batch, p.tile, p.kv_heads, dim};
  Side side{AlignedBuffer(shape[0] * shape[1] * shape[2] * shape[3] *
                          static_cast<std::int64_t>(dtype_bytes(p.kv_dtype))),
            {}};
  side.view = dense_view<void>(side.tail.data(), p.kv_dtype, shape);
  return side;
}

LayerStorage::LayerStorage(const Problem& p, std::int64_t rows)
    : problem_(p),
      unit_bytes_(rows * (p.head_dim + p.value_dim) * static_cast<std::int64_t>(dtype_bytes(p.kv_dtype))),
      packed_(p.batch * p.kv_heads * unit_bytes_),
      k_(make_side(p, p.head_dim)),
      v_(make_side(p, p.value_dim)) {}

std::int64_t LayerStorage::bytes(const Problem& p, std::int64_t rows) {
  return p.batch * p.kv_heads * (rows + p.tile) * (p.head_dim + p.value_dim) *
         static_cast<std::int64_t>(dtype_bytes(p.kv_dtype));
}

// Rows [first, first + rows) of `from` become rows [at, at + rows) of the tail.
void LayerStorage::keep_tail(Side& side, const ConstTensorView& from, std::int64_t first, std::int64_t at,
                             std::int64_t rows) {
  const std::size_t element = dtype_bytes(from.dtype);
  for (std::int64_t b = 0; b < from.shape[0]; ++b) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t h = 0; h < from.shape[2]; ++h) {
        std::memcpy(side.tail.data() + static_cast<std::size_t>(side.view.offset(b, at + row, h)) * element,
                    static_cast<const std::byte*>(from.data) +
                        static_cast<std::size_t>(from.offset(b, first + row, h)) * element,
                    static_cast<std::size_t>(from.shape[3]) * element);
      }
    }
  }
}

void LayerStorage::append(const BlockMap& map, const ConstTensorView& k, const ConstTensorView& v) {
  const std::int64_t before = rows_, added = k.shape[1];
  if (added == 0) return;
  rows_ += added;
  for (std::size_t i = 0; i < map.pieces().size(); ++i) {
    const Piece& piece = map.pieces()[i];
    const std::int64_t end = piece.first_row + piece.keys;
    if (end <= before) continue;
    // What of the piece is new; the rest of it is in the tail.
    const std::int64_t old = std::max<std::int64_t>(0, before - piece.first_row);
    const std::int64_t first = piece.first_row + old - before;
    const bool joined = old > 0, last = end == rows_;
    if (joined || last) {
      keep_tail(k_, k, first, old, piece.keys - old);
      keep_tail(v_, v, first, old, piece.keys - old);
    }
    const ConstTensorView tail_k = as_const(k_.view), tail_v = as_const(v_.view);
    const bool from_tail = joined || last;
    const std::int64_t row = from_tail ? 0 : first;
    for (std::int64_t unit = 0; unit < problem_.batch * problem_.kv_heads; ++unit) {
      const std::int64_t b = unit / problem_.kv_heads, h = unit % problem_.kv_heads;
      const PackedTile tile = map.tile(packed_.data(), unit_bytes_, unit, static_cast<std::int64_t>(i));
      const auto at = [&](const std::byte* p) { return packed_.data() + (p - packed_.data()); };
      pack_keys(map.products(), {from_tail ? &tail_k : &k, b, h, row, piece.keys}, at(tile.k));
      pack_values(map.products(), {from_tail ? &tail_v : &v, b, h, row, piece.keys}, at(tile.v));
    }
  }
}

}  // namespace kvring
