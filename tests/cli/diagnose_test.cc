// kvring diagnose on records that were cut short or edited.
#include <gmock/gmock.h>

#include <functional>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class DiagnoseCommand : public KvringTest {
 protected:
  void expect_refusal(const std::string& text, const char* message) const {
    write_file(file("rank-0.json"), text);
    const RunResult result = kvring({"diagnose", "rank-0.json"});
    EXPECT_EQ(result.code, 3) << text;
    EXPECT_THAT(result.err, HasSubstr(message));
  }

  // `change` to a good record of rank 1 of 4.
  void expect_refusal(const std::function<void(Json&)>& change, const char* message) const {
    Json json = good();
    change(json);
    expect_refusal(json.dump(), message);
  }

  static Json good() {
    return Json::parse(
        R"({"schema_version": 1, "rank": 1, "ranks": 4, "host": "a", "reason": "", "culprit": null,
      "verdict": "", "silent": [2], "operations": [{"what": "receive", "cargo": "block", "block": 0, "call": 0,
      "lap": 0, "step": 1, "peer": 0, "bytes": 8, "posted_s": 1.5, "done_s": null}]})");
  }
};

TEST_F(DiagnoseCommand, RefusesWhatIsNoRecord) {
  write_file(file("rank-0.json"), good().dump());
  EXPECT_EQ(kvring({"diagnose", "rank-0.json"}).code, 0);
  expect_refusal("",
                 "not a record of kvring attend --record: [json.exception.parse_error.101] parse error at "
                 "line 1, column 1");
  expect_refusal(good().dump().substr(0, 50), "parse error at line 1, column 51");
  expect_refusal("[]", "is a list where an object with \"schema_version\" must be");
  expect_refusal(R"({"schema_version": 2})", "schema_version is 2; this kvring reads 1");
  EXPECT_EQ(kvring({"diagnose"}).code, 2);
  EXPECT_EQ(kvring({"diagnose", "none.json"}).code, 3);
  const RunResult folder = kvring({"diagnose", "."});
  EXPECT_EQ(folder.code, 3);
  EXPECT_THAT(folder.err, HasSubstr(".: cannot be read; is it a file? [InputFile]"));
}

// Some passed unnoticed; a thousand million ranks kept it busy for minutes.
TEST_F(DiagnoseCommand, RefusesRecordsThatWereEdited) {
  expect_refusal([](Json& j) { j["ranks"] = 1000000000; },
                 "has \"ranks\" 1000000000; it must be a whole number from 1 to 65536");
  expect_refusal([](Json& j) { j["ranks"] = 0; }, "has \"ranks\" 0");
  expect_refusal([](Json& j) { j["rank"] = 4; }, "has \"rank\" 4; it must be a whole number from 0 to 3");
  expect_refusal([](Json& j) { j["rank"] = 9223372036854775808u; }, "has \"rank\" 9223372036854775808");
  expect_refusal([](Json& j) { j["rank"] = 1.5; }, "has \"rank\" 1.5");
  expect_refusal([](Json& j) { j["culprit"] = 4; }, "has \"culprit\" 4");
  expect_refusal([](Json& j) { j["silent"] = {0, -1}; }, "has \"silent\" -1");
  expect_refusal([](Json& j) { j["operations"] = Json::object(); },
                 "has \"operations\" an object; it must be a list");
  expect_refusal([](Json& j) { j["operations"][0]["peer"] = nullptr; }, "operation 0 has \"peer\" null");
  expect_refusal([](Json& j) { j["operations"][0]["peer"] = 4; }, "operation 0 has \"peer\" 4");
  expect_refusal([](Json& j) { j["operations"][0]["what"] = "recieve"; },
                 "operation 0 has \"what\" \"recieve\"");
  expect_refusal([](Json& j) { j["operations"][0]["done_s"] = "now"; }, "operation 0 has \"done_s\" \"now\"");
}

}  // namespace
}  // namespace kvring::cli
