// A picture in SVG, as text.
#pragma once

#include <string>
#include <string_view>

namespace kvring {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

enum class Anchor { kStart, kMiddle, kEnd };
struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::kStart;
  bool bold = false;
  const char* color = "#222222";
};

class Svg {
 public:
  Svg(double width, double height);

  // `content` goes in as it is.
  void define(std::string_view content);
  void rect(const Box& box, std::string_view fill, std::string_view more = {});
  void path(std::string_view data, std::string_view fill);
  void line(double x1, double y1, double x2, double y2, std::string_view stroke);
  // `y` is the base line. Any text: what XML cannot hold is replaced.
  void text(double x, double y, std::string_view text, const TextStyle& style);
  std::string finish() const;

 private:
  std::string text_;
};

// About how wide it will be, erring on the wide side: fonts differ.
double text_width(std::string_view text, double size);
// Shortened, with dots, to at most that width.
std::string fitted(std::string_view text, double size, double width);
// A coordinate with at most two digits behind the point.
std::string coordinate(double value);

}  // namespace kvring
