#include "cli/row_check.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "reference/bound.h"
#include "reference/reference.h"
#include "tensor/buffer.h"

namespace kvring::cli {
namespace {

constexpr std::int64_t kDefaultRows = 64;
// Below so many (row, key) pairs all rows are checked: less than a second.
constexpr std::int64_t kFewPairs = std::int64_t{1} << 22;
constexpr std::int64_t kReadBytes = std::int64_t{4} << 20;

RowId row_of(const Problem& p, std::int64_t index) {
  return {index / p.q_heads / p.q_len, index / p.q_heads % p.q_len, index % p.q_heads};
}

// The local row of a position, or -1 where the shard does not have it.
std::int64_t local_row(const Shard& shard, std::int64_t position) {
  for (std::size_t i = 0; i < shard.ranges().size(); ++i) {
    const Range& range = shard.ranges()[i];
    if (range.begin <= position && position < range.end) return shard.offsets()[i] + position - range.begin;
  }
  return -1;
}

void append(std::string& bytes, const void* data, std::size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

// All positions of one head of one batch entry, dense: (seqlen, dim).
AlignedBuffer read_head(const InputTensor& tensor, std::int64_t b, std::int64_t h) {
  const auto [batch, seqlen, heads, dim] = tensor.shape();
  const std::int64_t row_bytes = dim * static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
  const std::int64_t most = std::max<std::int64_t>(1, kReadBytes / (heads * row_bytes));
  AlignedBuffer head(seqlen * row_bytes);
  std::vector<std::byte> run(static_cast<std::size_t>(std::min(most, seqlen) * heads * row_bytes));
  for (std::int64_t s = 0; s < seqlen; s += most) {
    const std::int64_t count = std::min(most, seqlen - s);
    tensor.read_rows(b, {s, s + count}, run.data());
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(head.data() + (s + i) * row_bytes, run.data() + (i * heads + h) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
  }
  return head;
}

// One head as if it were the whole tensor: every batch entry and head looks alike.
ConstTensorView as_whole(const AlignedBuffer& head, const InputTensor& tensor) {
  return {head.data(), tensor.dtype(), tensor.shape(), {0, tensor.shape()[3], 0, 1}};
}

// Likewise one token of q, all its heads.
ConstTensorView token_as_whole(const std::vector<std::byte>& token, const InputTensor& q) {
  return {token.data(), q.dtype(), q.shape(), {0, 0, q.shape()[3], 1}};
}

}  // namespace

std::vector<RowId> sample_rows(const Problem& p, std::optional<std::int64_t> count, std::uint64_t seed) {
  const std::int64_t total = p.batch * p.q_len * p.q_heads;
  const bool cheap = total <= kFewPairs / std::max<std::int64_t>(1, p.kv_len);
  const std::int64_t wanted = std::min(total, count.value_or(cheap ? total : kDefaultRows));
  std::set<std::int64_t> indices;
  if (wanted > 0) indices.insert(total - 1);
  if (wanted > 1) indices.insert(0);
  // Floyd's algorithm draws the others without repetition from 1 .. total-2 in as many steps.
  const std::int64_t inner = total - 2;
  for (std::int64_t top = inner - (wanted - 2); top < inner && wanted > 2; ++top) {
    const std::uint64_t bits = XXH3_64bits_withSeed(&top, sizeof top, seed);
    const auto drawn = static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(top + 1));
    if (!indices.insert(1 + drawn).second) indices.insert(1 + top);
  }
  std::vector<RowId> rows;
  for (std::int64_t index : indices) rows.push_back(row_of(p, index));
  return rows;
}

std::string pack_rows(const std::vector<RowId>& sample, const Shard& shard, const ConstTensorView& out,
                      const LseView& lse) {
  std::string bytes;
  for (const RowId& row : sample) {
    const std::int64_t local = local_row(shard, row.s);
    if (local < 0) continue;
    append(bytes, &row, sizeof row);
    append(bytes, lse.data + lse.offset(row.b, row.h, local), sizeof(float));
    for (std::int64_t d = 0; d < out.shape[3]; ++d) {
      const float value = load_element(out.data, out.dtype, out.offset(row.b, local, row.h) + d);
      append(bytes, &value, sizeof value);
    }
  }
  return bytes;
}

std::vector<ComputedRow> unpack_rows(const std::vector<std::string>& by_rank, std::int64_t value_dim) {
  std::vector<ComputedRow> rows;
  const std::size_t out_bytes = static_cast<std::size_t>(value_dim) * sizeof(float);
  const std::size_t record = sizeof(RowId) + sizeof(float) + out_bytes;
  for (const std::string& bytes : by_rank) {
    for (std::size_t at = 0; at + record <= bytes.size(); at += record) {
      ComputedRow row{{}, std::vector<float>(static_cast<std::size_t>(value_dim)), 0};
      std::memcpy(&row.id, bytes.data() + at, sizeof row.id);
      std::memcpy(&row.lse, bytes.data() + at + sizeof row.id, sizeof row.lse);
      std::memcpy(row.out.data(), bytes.data() + at + sizeof row.id + sizeof row.lse, out_bytes);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

void ErrorStats::add(double got, double expected, double scale, double allowed, const RowId& row) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool right = matches(got, expected, allowed);
  const bool finite = std::isfinite(got) && std::isfinite(expected);
  const double error = finite ? std::fabs(got - expected) : right ? 0 : kInfinity;
  const auto ratio = [](double a, double b) { return a == 0 ? 0 : a / b; };
  max_abs = std::max(max_abs, error);
  max_rel = std::max(max_rel, ratio(error, scale));
  // `right` decides, so that a quotient rounded to 1 cannot hide a fault.
  double over = ratio(error, allowed);
  if (!right) over = std::max(over, std::nextafter(1.0, 2.0));
  if (over < over_bound || (over == over_bound && bound > 0)) return;
  over_bound = over;
  bound = allowed;
  worst = row;
}

RowCheck check_rows(const Job& job, std::vector<ComputedRow> rows,
                    const std::function<void(double)>& progress) {
  const Problem& p = job.problem;
  const std::int64_t group = p.q_heads / p.kv_heads;
  std::sort(rows.begin(), rows.end(), [&](const ComputedRow& x, const ComputedRow& y) {
    return std::tuple(x.id.b, x.id.h / group, x.id) < std::tuple(y.id.b, y.id.h / group, y.id);
  });
  RowCheck check;
  AlignedBuffer k, v;
  std::pair<std::int64_t, std::int64_t> loaded = {-1, -1};  // batch entry, kv head
  std::vector<std::byte> token(static_cast<std::size_t>(p.q_heads * p.head_dim) * dtype_bytes(p.q_dtype));
  for (const ComputedRow& row : rows) {
    const std::pair head = {row.id.b, row.id.h / group};
    if (head != loaded) {
      k = read_head(job.k, head.first, head.second);
      v = read_head(job.v, head.first, head.second);
      loaded = head;
    }
    job.q.read_rows(row.id.b, {row.id.s, row.id.s + 1}, token.data());
    const ReferenceRow expected =
        reference_row(p, token_as_whole(token, job.q), as_whole(k, job.k), as_whole(v, job.v),
                      job.sinks_or_null(), row.id.b, row.id.s, row.id.h);
    bool bounded = true;
    const auto add = [&](ErrorStats& stats, double got, double want, double scale, double bound) {
      if (std::isinf(bound)) {
        bounded = false;
      } else {
        stats.add(got, want, scale, bound, row.id);
      }
    };
    for (std::size_t d = 0; d < row.out.size(); ++d)
      add(check.out, row.out[d], expected.out[d], expected.weighted_abs_v[d],
          out_bound(p, expected, static_cast<std::int64_t>(d)));
    add(check.lse, row.lse, expected.lse, std::max(1.0, std::fabs(expected.lse)), lse_bound(p, expected));
    check.unbounded_rows += bounded ? 0 : 1;
    progress(static_cast<double>(++check.rows) / static_cast<double>(rows.size()));
  }
  check.passed = check.out.over_bound <= 1 && check.lse.over_bound <= 1 && check.unbounded_rows == 0;
  return check;
}

}  // namespace kvring::cli
