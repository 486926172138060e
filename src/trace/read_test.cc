#include "trace/read.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "kvring/error.h"
#include "trace/picture.h"
#include "trace/summary.h"
#include "trace/test_support.h"

namespace kvring {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Trace read_text(const std::string& text) { return read_trace(TempFile(text).path()); }

std::string message_of(const std::string& text) {
  try {
    read_text(text);
  } catch (const InputFile& error) {
    return error.what();
  }
  return "";
}

// `change` to a good trace of two ranks.
std::string message_of(const std::function<void(Json&)>& change) {
  Json json = Json::parse(written(sample_trace(2)));
  change(json);
  return message_of(json.dump());
}

Json& first_slice(Json& json) {
  for (Json& event : json["traceEvents"])
    if (event["ph"] == "X") return event;
  throw std::runtime_error("no slice");
}

TEST(ReadTrace, GivesBackWhatWasWritten) {
  const Trace trace = sample_trace(5, 3);
  const std::string text = written(trace);
  const Trace read = read_text(text);
  EXPECT_EQ(written(read), text);
  EXPECT_EQ(read.info.problem_text, trace.info.problem_text);
  ASSERT_EQ(read.ranks.size(), 5u);
  EXPECT_EQ(read.ranks[4].operations.size(), trace.ranks[4].operations.size());
  EXPECT_EQ(summarize(read).efficiency, summarize(trace).efficiency);
}

TEST(ReadTrace, IgnoresWhatOthersAdded) {
  Json json = Json::parse(written(sample_trace(2)));
  json["systemTraceEvents"] = "more";
  json["traceEvents"].push_back({{"ph", "i"}, {"name", "note"}});
  json["otherData"]["by"] = 7;
  EXPECT_EQ(read_text(json.dump()).ranks.size(), 2u);
}

TEST(ReadTrace, SaysWhatIsWrong) {
  EXPECT_THROW(read_trace("/nowhere/run.json"), InputFile);
  EXPECT_THROW(read_trace("/tmp"), InputFile);
  EXPECT_THAT(message_of(""), HasSubstr("not a trace of kvring"));
  EXPECT_THAT(message_of("{\"traceEvents\": ["), HasSubstr("not a trace of kvring"));
  EXPECT_THAT(message_of("[1, 2]"), HasSubstr("is a list where an object"));
  EXPECT_THAT(message_of("{\"traceEvents\": []}"), HasSubstr("has no \"otherData\""));
  EXPECT_THAT(message_of(std::string(100000, '[')), HasSubstr("not a trace"));
  EXPECT_THAT(message_of([](Json& j) { j["otherData"]["schema_version"] = 2; }),
              HasSubstr("this kvring reads 1"));
  EXPECT_THAT(message_of([](Json& j) { j["otherData"]["ranks"] = 3; }), HasSubstr("has 3 ranks"));
  EXPECT_THAT(message_of([](Json& j) { j["otherData"]["ranks"] = 1e300; }), HasSubstr("\"ranks\" 1e+300"));
  EXPECT_THAT(message_of([](Json& j) { j["otherData"]["ranks"] = 18446744073709551615u; }),
              HasSubstr("from 1 to 65536"));
  EXPECT_THAT(message_of([](Json& j) { j["otherData"]["problem"] = "x"; }), HasSubstr("\"problem\""));
  EXPECT_THAT(message_of([](Json& j) { j["traceEvents"] = Json::object(); }), HasSubstr("no list"));
  EXPECT_THAT(message_of([](Json& j) { j["traceEvents"].push_back(5); }), HasSubstr("is 5 where an object"));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["pid"] = 2; }), HasSubstr("\"pid\" 2"));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["ts"] = -1; }), HasSubstr("\"ts\" -1"));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["dur"] = 1e200; }), HasSubstr("\"dur\" 1e+200"));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["dur"] = nullptr; }), HasSubstr("\"dur\" null"));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["args"]["what"] = "dance"; }),
              HasSubstr("\"what\" \"dance\""));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["args"].erase("step"); }),
              HasSubstr("has no \"step\""));
  EXPECT_THAT(message_of([](Json& j) { first_slice(j)["args"]["block"] = -1; }), HasSubstr("\"block\" -1"));
}

// Bytes that were changed, lost or doubled: an InputFile or a trace, which can be drawn.
RC_GTEST_PROP(ReadTrace, SurvivesDamage, ()) {
  static const std::string kGood = written(sample_trace(2, 1));
  std::string text = kGood;
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const int kind = *rc::gen::inRange(0, 4);
    if (kind == 0) text[at] = *rc::gen::elementOf(std::string("0123456789-.eE{}[]\",:\xff"));
    if (kind == 1) text.erase(at, *rc::gen::inRange<std::size_t>(1, 40));
    if (kind == 2) text.insert(at, text.substr(at, *rc::gen::inRange<std::size_t>(1, 300)));
    if (kind == 3)
      text.insert(at, *rc::gen::elementOf(std::vector<std::string>{"9999999", "-", "null", "1e308", "[["}));
    if (text.empty()) text = "{";
  }
  try {
    const Trace trace = read_text(text);
    RC_ASSERT(draw_trace(trace).ends_with("</svg>\n"));
    RC_ASSERT(!written(trace).empty());
  } catch (const InputFile&) {
  }
}

}  // namespace
}  // namespace kvring
