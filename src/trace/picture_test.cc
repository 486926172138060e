#include "trace/picture.h"

#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include "trace/rows.h"
#include "trace/svg.h"
#include "trace/test_support.h"

namespace kvring {
namespace {

using testing::HasSubstr;
using testing::Not;

// The area of a path of rectangles.
double area(const std::string& path) {
  static const std::regex kBox(R"(M\S+ [^h]+h([^v]+)v([^h]+)h)");
  double sum = 0;
  for (std::sregex_iterator it(path.begin(), path.end(), kBox), end; it != end; ++it)
    sum += std::stod((*it)[1]) * std::stod((*it)[2]);
  return sum;
}

double area_of(const std::array<std::string, kShades>& paths, Shade shade) {
  return area(paths[static_cast<std::size_t>(shade)]);
}

// The shares of the bar are the shares of the time, whether operations are wider than a pixel or not.
TEST(RowPaths, AreasAreShares) {
  for (const int laps : {1, 400}) {
    const Trace trace = sample_trace(4, laps);
    const TraceSummary summary = summarize(trace);
    const RowScale scale{
        {100, 0, 600, 20}, {100, 22, 600, 4}, summary.wall_s * 1e9, std::llround(summary.wall_s * 1e9)};
    const auto paths = row_paths(trace.ranks[0], scale);
    const double whole = 600 * 20, wall = summary.wall_s;
    const double attended = area_of(paths, Shade::kEven) + area_of(paths, Shade::kOdd);
    const double others = laps * (100 + 75) * 1e-9;
    const double attending = summary.ranks[0].busy_s - others;
    // Coordinates have two digits behind the point, of columns that are 2 wide and up to 20 high.
    const double tolerance = 0.003 * whole;
    EXPECT_NEAR(attended, whole * attending * 0.6 / wall, tolerance) << laps;
    EXPECT_NEAR(area_of(paths, Shade::kSkipped), whole * attending * 0.4 / wall, tolerance);
    EXPECT_NEAR(area_of(paths, Shade::kLate), whole * summary.ranks[0].exposed_late_s / wall, tolerance);
    EXPECT_NEAR(area_of(paths, Shade::kTransfer), whole * summary.ranks[0].exposed_transfer_s / wall,
                tolerance);
    EXPECT_NEAR(area_of(paths, Shade::kOther), whole * others / wall, tolerance);
    EXPECT_NEAR(area_of(paths, Shade::kIdle), 0, tolerance);
  }
}

TEST(DrawTrace, StaysSmallForManyOperations) {
  EXPECT_LT(draw_trace(sample_trace(64, 20)).size(), 2500000u);  // of 164,000 operations
}

// No text leaves the picture, even in a wide font.
TEST(DrawTrace, ClipsNoText) {
  for (const int ranks : {1, 2, 7, 64, 300}) {
    Trace trace = sample_trace(ranks, 1);
    trace.info.problem_text = std::string(400, 'w');
    trace.info.layout = std::string(200, 'w');
    trace.ranks[0].host = std::string(64, 'h');
    const std::string svg = draw_trace(trace);
    static const std::regex kText(
        "<text x=\"([^\"]+)\" y=\"([^\"]+)\" font-size=\"([^\"]+)\" text-anchor=\"(\\w+)\"[^>]*>([^<]*)<");
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex("height=\"([^\"]+)\"")));
    int texts = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it, ++texts) {
      const std::string words = (*it)[5], anchor = (*it)[4];
      const double width = text_width(words, std::stod((*it)[3]));
      const double x = std::stod((*it)[1]);
      const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
      EXPECT_GE(left, 0) << words;
      EXPECT_LE(left + width, 1000) << words;
      EXPECT_LE(std::stod((*it)[2]), std::stod(size[1])) << words;
    }
    EXPECT_GT(texts, 15);
  }
}

TEST(DrawTrace, SaysHowManyOfManyRanksItShows) {
  const std::string svg = draw_trace(sample_trace(300, 1));
  EXPECT_THAT(svg, HasSubstr("64 shown"));
  EXPECT_THAT(svg, HasSubstr(">299 "));  // the last one is among them
  EXPECT_THAT(draw_trace(sample_trace(64, 1)), Not(HasSubstr("shown")));
}

TEST(DrawTrace, ForeignTextIsNoMarkup) {
  Trace trace = sample_trace(2);
  trace.info.layout = "<script>&\"\x01\xff";
  trace.ranks[1].host = "</svg>";
  const std::string svg = draw_trace(trace);
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot;??"));
  EXPECT_EQ(svg.find("</svg>"), svg.size() - 7);
}

// Half of the axis for a run of half the time, and no idling after its end.
TEST(DrawTrace, SameScaleForTwoRuns) {
  const Trace trace = sample_trace(2);
  const double wall = summarize(trace).wall_s;
  const RowScale scale{{0, 0, 600, 20}, {0, 22, 600, 4}, 2e9 * wall, std::llround(wall * 1e9)};
  double sum = 0;
  const auto paths = row_paths(trace.ranks[0], scale);
  for (std::size_t s = 0; s < kShades; ++s)
    if (static_cast<Shade>(s) != Shade::kMoving) sum += area(paths[s]);
  EXPECT_NEAR(sum, 600.0 * 20 / 2, 40);
  EXPECT_NE(draw_trace(trace), draw_trace(trace, 2 * wall));
  EXPECT_EQ(draw_trace(trace), draw_trace(trace, wall / 2));
}

TEST(DrawTrace, DrawsARunOfNothing) {
  Trace trace;
  trace.ranks.resize(2);
  EXPECT_TRUE(draw_trace(trace).ends_with("</svg>\n"));
  EXPECT_THAT(draw_trace(trace), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace kvring
