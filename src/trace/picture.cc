#include "trace/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trace/rows.h"
#include "trace/summary.h"
#include "trace/svg.h"

namespace kvring {
namespace {

constexpr double kWidth = 1000;
constexpr double kMargin = 16;
constexpr double kBarsLeft = 96, kBarsRight = 716;         // of the time
constexpr double kBalanceLeft = 744, kBalanceRight = 920;  // of the balance; then its percentage
constexpr int kMostRows = 64;

// Blues for work, warm colours for time that is lost, grey for what is neither (after Okabe and Ito's
// palette). Each kind of waiting has a hatch of its own, for print and for eyes that do not tell the colours
// apart.
struct Ink {
  Shade shade;
  const char* fill;
  const char* label;  // in the legend; null: not there
};
constexpr Ink kInks[] = {
    {Shade::kEven, "#1f6aa5", "attending, even steps"},
    {Shade::kOdd, "#69aede", "odd steps"},
    {Shade::kSkipped, "#dcebf7", "skipped share of the block"},
    {Shade::kOther, "#0b2f4e", "packing, finishing"},
    {Shade::kLate, "url(#late)", "waiting: block not ready"},
    {Shade::kTransfer, "url(#transfer)", "waiting: block on its way"},
    {Shade::kSend, "url(#send)", "waiting: memory lent out"},
    {Shade::kIdle, "url(#idle)", "not begun, or finished"},
    {Shade::kMoving, "#444444", "block arriving"},
};

constexpr const char* kPatterns =
    "<pattern id=\"late\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" "
    "height=\"5\" "
    "fill=\"#d55e00\"/><path d=\"M-1 1l2 -2M0 5l5 -5M4 6l2 -2\" stroke=\"#6e2c00\" "
    "stroke-width=\"1.1\"/></pattern>"
    "<pattern id=\"transfer\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" "
    "height=\"5\" "
    "fill=\"#f0c419\"/><path d=\"M-1 4l2 2M0 0l5 5M4 -1l2 2\" stroke=\"#6b5300\" "
    "stroke-width=\"0.9\"/></pattern>"
    "<pattern id=\"send\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" "
    "height=\"4\" "
    "fill=\"#cc79a7\"/><circle cx=\"2\" cy=\"2\" r=\"0.9\" fill=\"#4d1535\"/></pattern>"
    "<pattern id=\"idle\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect width=\"8\" "
    "height=\"8\" "
    "fill=\"#f6f6f6\"/><path d=\"M-1 1l2 -2M0 8l8 -8M7 9l2 -2\" stroke=\"#b5b5b5\" "
    "stroke-width=\"0.9\"/></pattern>";

const char* fill_of(Shade shade) {
  for (const Ink& ink : kInks)
    if (ink.shade == shade) return ink.fill;
  return "none";
}

// 1, 2 or 5 times a power of ten, five to ten of them in `length`.
double tick_step(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 5)));
  for (const double factor : {5.0, 2.0})
    if (factor * power * 5 <= length) return factor * power;
  return power;
}

std::vector<std::size_t> shown_ranks(std::size_t ranks) {
  const std::size_t rows = std::min<std::size_t>(ranks, kMostRows);
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < rows; ++i) shown.push_back(rows == 1 ? 0 : i * (ranks - 1) / (rows - 1));
  return shown;
}

double row_height(std::size_t rows) {
  if (rows <= 8) return 44;
  if (rows <= 16) return 30;
  return rows <= 32 ? 20 : 13;
}

class Picture {
 public:
  Picture(const Trace& trace, double span_s)
      : trace_(trace),
        summary_(summarize(trace)),
        span_s_(std::max({summary_.wall_s, span_s, 1e-9})),
        shown_(shown_ranks(trace.ranks.size())),
        row_(row_height(shown_.size())),
        bottom_(kTop + static_cast<double>(shown_.size()) * row_),
        svg_(kWidth, bottom_ + kFoot) {}

  std::string draw() {
    svg_.define(kPatterns);
    title();
    axis();
    for (std::size_t i = 0; i < shown_.size(); ++i) row(i);
    legend();
    return svg_.finish();
  }

 private:
  static constexpr double kTop = 92;   // of the first row
  static constexpr double kFoot = 88;  // below the last one

  void title() {
    const TraceInfo& info = trace_.info;
    const std::string head = fmt::format("{}{} ranks, {} layout, {} schedule: {:.0f} % of the time computing",
                                         info.simulated ? "Simulated: " : "", trace_.ranks.size(),
                                         info.layout, info.schedule, summary_.efficiency * 100);
    constexpr double kHead = 16, kSmall = 11.5;
    svg_.text(kMargin, 27, fitted(head, kHead, kWidth - 2 * kMargin), {.size = kHead, .bold = true});
    svg_.text(kMargin, 46, fitted(info.problem_text, kSmall, kWidth - 2 * kMargin), {.size = kSmall});
  }

  void axis() {
    const TimeUnit unit = unit_for(span_s_);
    const double length = span_s_ / unit.seconds, step = tick_step(length);
    const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
    for (int i = 0; i * step <= length; ++i) {
      const double x = kBarsLeft + i * step / length * (kBarsRight - kBarsLeft);
      svg_.line(x, kTop - 6, x, bottom_ + 4, "#cccccc");
      svg_.text(x, bottom_ + 17, fmt::format("{:.{}f}", i * step, digits),
                {.size = 11, .anchor = Anchor::kMiddle});
    }
    svg_.text((kBarsLeft + kBarsRight) / 2, bottom_ + 33, fmt::format("time since the start ({})", unit.name),
              {.size = 11, .anchor = Anchor::kMiddle});
    svg_.text(kBalanceLeft, kTop - 12, "time, busy %", {.size = 11});
    if (most_tiles() > 0)
      svg_.text(kBalanceLeft, bottom_ + 17, "thin bar: tiles computed, skipped", {.size = 11});
    svg_.text(kMargin, kTop - 12,
              shown_.size() == trace_.ranks.size() ? "rank" : fmt::format("rank ({} shown)", shown_.size()),
              {.size = 11});
  }

  void row(std::size_t i) {
    const std::size_t rank = shown_[i];
    const double y = kTop + static_cast<double>(i) * row_;
    const double gap = row_ * 0.1;
    const double bars = row_ * 0.62, strip = std::max(1.5, row_ * 0.12);
    const double size = std::min(12.0, row_ - 2);
    svg_.text(kBarsLeft - 8, y + gap + bars / 2 + size * 0.36, label(rank),
              {.size = size, .anchor = Anchor::kEnd});
    const RowScale scale{{kBarsLeft, y + gap, kBarsRight - kBarsLeft, bars},
                         {kBarsLeft, y + gap + bars + strip * 0.3, kBarsRight - kBarsLeft, strip},
                         span_s_ * 1e9,
                         std::llround(summary_.wall_s * 1e9)};
    const auto paths = row_paths(trace_.ranks[rank], scale);
    for (std::size_t s = 0; s < paths.size(); ++s)
      if (!paths[s].empty()) svg_.path(paths[s], fill_of(static_cast<Shade>(s)));
    balance(rank, {kBalanceLeft, y + gap, kBalanceRight - kBalanceLeft, bars});
    work(rank, {kBalanceLeft, y + gap + bars + strip * 0.3, kBalanceRight - kBalanceLeft, strip});
    svg_.text(kBalanceRight + 8, y + gap + bars / 2 + size * 0.36,
              fmt::format("{:.0f} %", summary_.ranks[rank].efficiency * 100), {.size = size, .bold = true});
  }

  std::string label(std::size_t rank) const {
    std::string number = fmt::format("{}", rank);
    const auto same_host = [&](const RankTrace& r) { return r.host == trace_.ranks[0].host; };
    if (std::ranges::all_of(trace_.ranks, same_host)) return number;
    return fitted(number + " " + trace_.ranks[rank].host, std::min(12.0, row_ - 2), kBarsLeft - kMargin);
  }

  // Parts of a bar, from the left.
  void stack(const Box& box, double whole, const std::vector<std::pair<Shade, double>>& parts) {
    double x = box.x;
    for (const auto& [shade, part] : parts) {
      const double width = std::min(part / whole * box.width, box.x + box.width - x);
      if (width > 0) svg_.rect({x, box.y, width, box.height}, fill_of(shade));
      x += width;
    }
  }

  void balance(std::size_t rank, const Box& box) {
    const RankSummary& s = summary_.ranks[rank];
    stack(box, std::max(summary_.wall_s, 1e-9),
          {{Shade::kEven, s.busy_s},
           {Shade::kLate, s.exposed_late_s},
           {Shade::kTransfer, s.exposed_transfer_s},
           {Shade::kSend, s.exposed_send_s},
           {Shade::kIdle, s.idle_s}});
    svg_.rect(box, "none", "stroke=\"#222222\" stroke-width=\"0.6\"");
  }

  static double tiles_of(const RankTrace& rank) {
    return static_cast<double>(rank.tiles.full) + static_cast<double>(rank.tiles.partial) +
           static_cast<double>(rank.tiles.skipped);
  }
  double most_tiles() const {
    double most = 0;
    for (const RankTrace& rank : trace_.ranks) most = std::max(most, tiles_of(rank));
    return most;
  }

  void work(std::size_t rank, const Box& box) {
    const double most = most_tiles();
    if (most <= 0) return;
    const Operation::Tiles& t = trace_.ranks[rank].tiles;
    stack(box, most,
          {{Shade::kEven, static_cast<double>(t.full) + static_cast<double>(t.partial)},
           {Shade::kSkipped, static_cast<double>(t.skipped)}});
  }

  void legend() {
    constexpr double kSize = 11, kSwatch = 18, kLine = 20;
    double x = kMargin, y = bottom_ + 54;
    for (const Ink& ink : kInks) {
      const double width = kSwatch + 6 + text_width(ink.label, kSize) + 14;
      if (x + width > kWidth - kMargin) {
        x = kMargin;
        y += kLine;
      }
      svg_.rect({x, y - 9, kSwatch, ink.shade == Shade::kMoving ? 4.0 : 11.0}, ink.fill);
      svg_.text(x + kSwatch + 6, y, ink.label, {.size = kSize});
      x += width;
    }
  }

  const Trace& trace_;
  TraceSummary summary_;
  double span_s_;  // of the axis
  std::vector<std::size_t> shown_;
  double row_, bottom_;
  Svg svg_;
};

}  // namespace

std::string draw_trace(const Trace& trace, double span_s) { return Picture(trace, span_s).draw(); }

}  // namespace kvring
