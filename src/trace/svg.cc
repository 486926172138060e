#include "trace/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace kvring {
namespace {

// Bytes outside of ASCII would have to be valid UTF-8 with none of the characters that XML forbids; names of
// hosts and problems have none.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result;
}

const char* anchor_name(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

}  // namespace

Svg::Svg(double width, double height)
    : text_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
          "{1}\" font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n",
          coordinate(width), coordinate(height))) {
  rect({0, 0, width, height}, "#ffffff");
}

void Svg::define(std::string_view content) { text_ += fmt::format("<defs>{}</defs>\n", content); }

void Svg::rect(const Box& box, std::string_view fill, std::string_view more) {
  text_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}{}/>\n",
                       coordinate(box.x), coordinate(box.y), coordinate(box.width), coordinate(box.height),
                       fill, more.empty() ? "" : " ", more);
}

void Svg::path(std::string_view data, std::string_view fill) {
  text_ += fmt::format("<path d=\"{}\" fill=\"{}\"/>\n", data, fill);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view stroke) {
  text_ += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"{}\" fill=\"none\"/>\n", coordinate(x1),
                       coordinate(y1), coordinate(x2), coordinate(y2), stroke);
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  text_ +=
      fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\"{} fill=\"{}\">{}</text>\n",
                  coordinate(x), coordinate(y), coordinate(style.size), anchor_name(style.anchor),
                  style.bold ? " font-weight=\"bold\"" : "", style.color, escaped(text));
}

std::string Svg::finish() const { return text_ + "</svg>\n"; }

double text_width(std::string_view text, double size) {
  constexpr double kWidest = 0.66;  // of the size; DejaVu Sans, a wide font, has 0.6 over English text
  return static_cast<double>(text.size()) * size * kWidest;
}

std::string fitted(std::string_view text, double size, double width) {
  std::string result(text);
  if (text_width(result, size) <= width) return result;
  while (!result.empty() && text_width(result, size) + text_width("...", size) > width) result.pop_back();
  return result + "...";
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace kvring
