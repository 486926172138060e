#include "trace/rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvring {
namespace {

constexpr double kSlot = 2;  // pixels; what is narrower is no longer told apart

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
  explicit Row(const RowScale& scale)
      : scale_(scale), slots_(static_cast<std::size_t>(std::ceil(scale.bars.width / kSlot))) {}

  void add(const Operation& o) {
    const Track track = track_of(o.what);
    if (track == Track::kSend) return;
    if (track == Track::kReceive) {
      move(o);
      return;
    }
    const Span span = span_of(o);
    fill(position(span.begin), position(span.end), shade_of(o), skipped_share(o));
  }

  void idle(std::int64_t from, std::int64_t to) { fill(position(from), position(to), Shade::kIdle, 0); }

  std::array<std::string, kShades> finish() {
    for (std::size_t i = 0; i < slots_.size(); ++i) draw_slot(i);
    return std::move(paths_);
  }

 private:
  using Slot = std::array<double, kShades>;  // pixels of the width by shade

  double position(std::int64_t time) const {
    return std::clamp(static_cast<double>(time) / scale_.wall_ns, 0.0, 1.0) * scale_.bars.width;
  }

  void draw(Shade shade, const Box& box) {
    std::string& path = paths_[static_cast<std::size_t>(shade)];
    path += 'M' + coordinate(box.x) + ' ' + coordinate(box.y) + 'h' + coordinate(box.width) + 'v' +
            coordinate(box.height) + 'h' + coordinate(-box.width) + 'z';
  }

  // From `from` to `to` pixels: the whole slots in between as one bar, the rest into the slots at its ends.
  void fill(double from, double to, Shade shade, double skipped) {
    const double first = std::ceil(from / kSlot), last = std::floor(to / kSlot);
    if (to - from < 2 * kSlot || last <= first) {
      gather(from, to, shade, skipped);
      return;
    }
    gather(from, first * kSlot, shade, skipped);
    gather(last * kSlot, to, shade, skipped);
    const Box& bars = scale_.bars;
    const double top = bars.height * skipped;
    const double x = bars.x + first * kSlot, width = (last - first) * kSlot;
    if (skipped < 1) draw(shade, {x, bars.y + top, width, bars.height - top});
    if (skipped > 0) draw(Shade::kSkipped, {x, bars.y, width, top});
  }

  void gather(double from, double to, Shade shade, double skipped) {
    while (from < to) {
      const auto slot = std::min(static_cast<std::size_t>(from / kSlot), slots_.size() - 1);
      const double end = slot + 1 == slots_.size() ? to : std::min(to, static_cast<double>(slot + 1) * kSlot);
      slots_[slot][static_cast<std::size_t>(shade)] += (end - from) * (1 - skipped);
      slots_[slot][static_cast<std::size_t>(Shade::kSkipped)] += (end - from) * skipped;
      from = std::max(end, std::nextafter(from, to));
    }
  }

  void draw_slot(std::size_t index) {
    // Computing at the bottom, as in whole bars, and what is to be seen at the top.
    constexpr Shade kOrder[] = {Shade::kOther, Shade::kEven, Shade::kOdd,      Shade::kSkipped,
                                Shade::kIdle,  Shade::kSend, Shade::kTransfer, Shade::kLate};
    const Box& bars = scale_.bars;
    const double x = bars.x + static_cast<double>(index) * kSlot;
    const double width = std::min(kSlot, bars.x + bars.width - x);
    double bottom = bars.y + bars.height;
    for (const Shade shade : kOrder) {
      const double height =
          std::min(1.0, slots_[index][static_cast<std::size_t>(shade)] / width) * bars.height;
      if (height < 0.05) continue;
      bottom -= height;
      draw(shade, {x, bottom, width, height});
    }
  }

  // From when this rank could know of a block until it was there; what overlaps is drawn once.
  void move(const Operation& o) {
    const std::int64_t end = span_of(o).end;
    const std::int64_t begin = o.began ? std::min(nanoseconds(*o.began), end) : nanoseconds(o.posted);
    const double from = std::max(position(begin), moved_), to = std::max(position(end), from + 1);
    const Box& strip = scale_.transfers;
    if (to > moved_ && from < strip.width)
      draw(Shade::kMoving, {strip.x + from, strip.y, std::min(to, strip.width) - from, strip.height});
    moved_ = std::max(moved_, to);
  }

  const RowScale& scale_;
  std::vector<Slot> slots_;
  std::array<std::string, kShades> paths_;
  double moved_ = 0;  // pixels that are drawn
};

}  // namespace

std::array<std::string, kShades> row_paths(const RankTrace& rank, const RowScale& scale) {
  Row row(scale);
  std::int64_t first = static_cast<std::int64_t>(scale.wall_ns), last = 0;
  for (const Operation& o : rank.operations) {
    row.add(o);
    const Track track = track_of(o.what);
    if (track == Track::kSend || track == Track::kReceive) continue;
    first = std::min(first, span_of(o).begin);
    last = std::max(last, span_of(o).end);
  }
  row.idle(0, first);
  row.idle(std::max(first, last), static_cast<std::int64_t>(scale.wall_ns));
  return row.finish();
}

}  // namespace kvring
