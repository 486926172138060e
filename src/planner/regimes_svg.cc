#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "planner/regimes.h"
#include "planner/text.h"

namespace kvring {
namespace {

constexpr double kWidth = 900, kHeight = 580;
constexpr double kLeft = 104, kRight = 660, kTop = 76, kBottom = 510;

struct Colour {
  std::string_view name;
  std::string_view fill;
};
// Told apart also by those who see few colours (after Okabe and Ito), pale enough for black lines on top.
constexpr std::array<Colour, 5> kColours = {{{"ring", "#8cc5e8"},
                                             {"all-gather", "#f3d98b"},
                                             {"pass-q", "#e8a07c"},
                                             {"ulysses", "#9fd4b5"},
                                             {"tree", "#d9b3d1"}}};

std::string_view colour_of(std::string_view schedule) {
  const auto found =
      std::find_if(kColours.begin(), kColours.end(), [&](const Colour& c) { return c.name == schedule; });
  return found == kColours.end() ? "#cccccc" : found->fill;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

// Both axes are logarithmic. A cell reaches half a step to either side of its value, cut at the frame.
class Axes {
 public:
  explicit Axes(const Regimes& r)
      : x0_(std::log2(static_cast<double>(r.slices.front()))),
        x1_(std::log2(static_cast<double>(r.slices.back()))),
        y0_(std::log10(r.bytes_per_s.front())),
        y1_(std::log10(r.bytes_per_s.back())) {}

  double x(double slice) const {
    return std::clamp(kLeft + (std::log2(slice) - x0_) / (x1_ - x0_) * (kRight - kLeft), kLeft, kRight);
  }
  double y(double speed) const {
    return std::clamp(kBottom - (std::log10(speed) - y0_) / (y1_ - y0_) * (kBottom - kTop), kTop, kBottom);
  }
  bool has_slice(double slice) const { return std::log2(slice) >= x0_ && std::log2(slice) <= x1_; }
  bool has_speed(double speed) const { return std::log10(speed) >= y0_ && std::log10(speed) <= y1_; }

 private:
  double x0_, x1_, y0_, y1_;
};

std::string text_at(double x, double y, std::string_view more, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     style);
}

// One rectangle per run of equal winners in a column.
std::string cells(const Regimes& r, const Axes& axes) {
  const auto edge = [](const auto& values, std::size_t i) {  // between values i - 1 and i
    if (i == 0) return static_cast<double>(values.front());
    if (i == values.size()) return static_cast<double>(values.back());
    return std::sqrt(static_cast<double>(values[i - 1]) * static_cast<double>(values[i]));
  };
  std::string svg;
  for (std::size_t i = 0; i < r.slices.size(); ++i) {
    const double left = axes.x(edge(r.slices, i)), right = axes.x(edge(r.slices, i + 1));
    for (std::size_t from = 0, to = 0; from < r.bytes_per_s.size(); from = to) {
      const int winner = r.winner[i][from];
      while (to < r.bytes_per_s.size() && r.winner[i][to] == winner) ++to;
      const double bottom = axes.y(edge(r.bytes_per_s, from)), top = axes.y(edge(r.bytes_per_s, to));
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         left, top, right - left + 0.3, bottom - top + 0.3,  // no seams
                         colour_of(r.names[static_cast<std::size_t>(winner)]));
    }
  }
  return svg;
}

std::string ticks(const Regimes& r, const Axes& axes) {
  std::string svg;
  for (std::int64_t slice = 1; slice <= r.slices.back(); slice *= 8) {
    const double x = axes.x(static_cast<double>(slice));
    svg += line(x, kBottom, x, kBottom + 5, "class=\"axis\"");
    svg += text_at(x, kBottom + 19, "text-anchor=\"middle\"", count_text(slice));
  }
  for (double speed = r.bytes_per_s.front(); speed <= r.bytes_per_s.back() * 1.01; speed *= 10) {
    const double y = axes.y(speed);
    svg += line(kLeft - 5, y, kLeft, y, "class=\"axis\"");
    svg += text_at(kLeft - 9, y + 4, "text-anchor=\"end\"", decimal_bytes_text(speed) + "/s");
  }
  svg += text_at((kLeft + kRight) / 2, kBottom + 42, "text-anchor=\"middle\"", "queries per rank (slice)");
  return svg + fmt::format(
                   "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">speed of the "
                   "slowest link, one direction</text>\n",
                   (kTop + kBottom) / 2);
}

std::string break_even(const Regimes& r, const Axes& axes) {
  std::string points;
  for (std::size_t i = 0; i < r.bytes_per_s.size(); ++i) {
    const auto slice = static_cast<double>(r.break_even[i]);
    if (slice > 0 && axes.has_slice(slice))
      points += fmt::format("{:.1f},{:.1f} ", axes.x(slice), axes.y(r.bytes_per_s[i]));
  }
  return "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"#111\" stroke-width=\"2.2\"/>\n";
}

// The machine's own links, and the slice that was asked for.
std::string marks(const Regimes& r, const Axes& axes) {
  std::string svg;
  for (const Regimes::Mark& mark : r.links) {
    if (!axes.has_speed(mark.bytes_per_s)) continue;
    const double y = axes.y(mark.bytes_per_s);
    svg += line(kLeft, y, kRight, y, "class=\"mark\"");
    svg += text_at(kRight + 6, y + 4, "class=\"small\"", mark.name);
  }
  const auto slice = static_cast<double>(std::max<std::int64_t>(r.slice_tokens, 1));
  if (axes.has_slice(slice)) {
    const double x = axes.x(slice);
    svg += line(x, kTop, x, kBottom, "class=\"mark\"");
    const bool late = x > (kLeft + kRight) / 2;
    svg += text_at(x, kTop - 6, late ? "class=\"small\" text-anchor=\"end\"" : "class=\"small\"",
                   fmt::format("this plan: {}", count_text(r.slice_tokens)));
  }
  return svg;
}

std::string legend(const Regimes& r) {
  const double x = kRight + 106;
  double y = kTop + 140;
  std::string svg = text_at(x, y - 14, "font-weight=\"bold\"", "fastest");
  for (const Colour& colour : kColours) {
    const auto found = std::find(r.names.begin(), r.names.end(), colour.name);
    if (found == r.names.end()) continue;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"16\" height=\"16\" fill=\"{}\" stroke=\"#555\"/>\n", x, y,
        colour.fill);
    svg += text_at(x + 23, y + 13, "", std::string(colour.name));
    y += 25;
  }
  y += 6;
  svg += line(x, y, x + 18, y, "stroke=\"#111\" stroke-width=\"2.2\"");
  svg += text_at(x + 23, y + 4, "", "break-even");
  svg += text_at(x, y + 22, "class=\"small\"", "right of it a step");
  svg += text_at(x, y + 36, "class=\"small\"", "hides its hop");
  return svg;
}

}  // namespace

std::string regimes_svg(const Regimes& r) {
  const Axes axes(r);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n"
      "<style>.axis{{stroke:#333}} .mark{{stroke:#333;stroke-width:1.2;stroke-dasharray:5 4}} "
      ".small{{font-size:11.5px;fill:#333}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += text_at(kLeft, 24, "font-size=\"15\" font-weight=\"bold\"", r.title);
  svg += text_at(kLeft, 44, "", r.subtitle);
  svg += cells(r, axes) + break_even(r, axes) + marks(r, axes) + ticks(r, axes) + legend(r);
  svg += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#333\"/>\n</svg>\n", kLeft,
      kTop, kRight - kLeft, kBottom - kTop);
  return svg;
}

}  // namespace kvring
