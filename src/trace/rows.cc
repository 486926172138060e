#include "trace/rows.h"

#include <algorithm>
#include <vector>

namespace kvring {
namespace {

// Pixels; what is narrower is no longer told apart. Low rows take wider columns: otherwise those of 64 ranks
// would make a picture of megabytes, and no eye could part them.
double narrow(double height) { return std::max(2.0, 32 / height); }

Shade shade_of(const Operation& o) {
  switch (o.what) {
    case Operation::What::kAttend:
      return o.step % 2 == 0 ? Shade::kEven : Shade::kOdd;
    case Operation::What::kWaitLate:
      return Shade::kLate;
    case Operation::What::kWaitTransfer:
      return Shade::kTransfer;
    case Operation::What::kWaitSend:
      return Shade::kSend;
    case Operation::What::kSend:
    case Operation::What::kReceive:
      return Shade::kMoving;
    case Operation::What::kPack:
    case Operation::What::kMerge:
    case Operation::What::kFinish:
      break;
  }
  return Shade::kOther;
}

// Of an attended block, 0 to 1.
double skipped_share(const Operation& o) {
  const double all = static_cast<double>(o.tiles.full) + static_cast<double>(o.tiles.partial) +
                     static_cast<double>(o.tiles.skipped);
  return o.what == Operation::What::kAttend && all > 0 ? static_cast<double>(o.tiles.skipped) / all : 0;
}

class Row {
 public:
  explicit Row(const RowScale& scale) : scale_(scale), narrow_(narrow(scale.bars.height)) {}

  // In the order of time.
  void add(const Operation& o) {
    const Span span = span_of(o);
    fill(position(span.begin), position(span.end), shade_of(o), skipped_share(o));
  }
  void idle(std::int64_t from, std::int64_t to) { fill(position(from), position(to), Shade::kIdle, 0); }

  // In the order of time. From when this rank could know of a block until it was there; what overlaps or all
  // but touches is drawn once.
  void move(const Operation& o) {
    constexpr double kTouch = 1;
    const std::int64_t end = span_of(o).end;
    const std::int64_t begin = o.began ? std::min(nanoseconds(*o.began), end) : nanoseconds(o.posted);
    const double from = position(begin), to = std::max(position(end), from + 1);
    if (from > moving_to_ + kTouch) {
      draw_moving();
      moving_from_ = from;
    }
    moving_to_ = std::max(moving_to_, to);
  }

  std::array<std::string, kShades> finish() {
    draw_gathered();
    draw_moving();
    return std::move(paths_);
  }

 private:
  double position(std::int64_t time) const {
    return std::clamp(static_cast<double>(time) / scale_.span_ns, 0.0, 1.0) * scale_.bars.width;
  }

  void draw(Shade shade, const Box& box) {
    std::string& path = paths_[static_cast<std::size_t>(shade)];
    path += 'M' + coordinate(box.x) + ' ' + coordinate(box.y) + 'h' + coordinate(box.width) + 'v' +
            coordinate(box.height) + 'h' + coordinate(-box.width) + 'z';
  }

  void fill(double from, double to, Shade shade, double skipped) {
    from = std::max(from, drawn_);
    if (to <= from) return;
    const Box& bars = scale_.bars;
    if (to - from >= narrow_) {
      draw_gathered();
      const double top = bars.height * skipped;
      if (skipped < 1) draw(shade, {bars.x + from, bars.y + top, to - from, bars.height - top});
      if (skipped > 0) draw(Shade::kSkipped, {bars.x + from, bars.y, to - from, top});
    } else {
      if (gathered_ == Gathered{}) gathered_from_ = from;
      gathered_[static_cast<std::size_t>(shade)] += (to - from) * (1 - skipped);
      gathered_[static_cast<std::size_t>(Shade::kSkipped)] += (to - from) * skipped;
    }
    drawn_ = to;
    if (gathered_ != Gathered{} && drawn_ - gathered_from_ >= narrow_) draw_gathered();
  }

  void draw_moving() {
    const Box& strip = scale_.transfers;
    const double to = std::min(moving_to_, strip.width);
    if (to > moving_from_)
      draw(Shade::kMoving, {strip.x + moving_from_, strip.y, to - moving_from_, strip.height});
  }

  // As one column, filled from below by shares.
  void draw_gathered() {
    // Computing at the bottom, as in whole bars, and what is to be seen at the top.
    constexpr Shade kOrder[] = {Shade::kOther, Shade::kEven, Shade::kOdd,      Shade::kSkipped,
                                Shade::kIdle,  Shade::kSend, Shade::kTransfer, Shade::kLate};
    if (gathered_ == Gathered{}) return;
    const Box& bars = scale_.bars;
    const double width = drawn_ - gathered_from_;
    double bottom = bars.y + bars.height;
    for (const Shade shade : kOrder) {
      const double height = gathered_[static_cast<std::size_t>(shade)] / width * bars.height;
      if (height <= 0) continue;
      bottom -= height;
      draw(shade, {bars.x + gathered_from_, bottom, width, height});
    }
    gathered_ = {};
  }

  using Gathered = std::array<double, kShades>;  // pixels of the width by shade

  const RowScale& scale_;
  double narrow_;
  Gathered gathered_{};
  double gathered_from_ = 0;
  double drawn_ = 0;  // up to there
  double moving_from_ = 0, moving_to_ = 0;
  std::array<std::string, kShades> paths_;
};

std::vector<Operation> by_time(std::vector<Operation> operations) {
  std::ranges::stable_sort(operations, {}, [](const Operation& o) { return span_of(o).begin; });
  return operations;
}

}  // namespace

std::array<std::string, kShades> row_paths(const RankTrace& rank, const RowScale& scale) {
  Row row(scale);
  std::int64_t last = 0;
  for (const Operation& o : by_time(rank.operations)) {
    const Track track = track_of(o.what);
    if (track == Track::kReceive) row.move(o);
    if (track == Track::kSend || track == Track::kReceive) continue;
    if (last == 0) row.idle(0, span_of(o).begin);
    row.add(o);
    last = std::max(last, span_of(o).end);
  }
  row.idle(last, scale.wall_ns);
  return row.finish();
}

}  // namespace kvring
