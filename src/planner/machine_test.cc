#include "planner/machine.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "kvring/error.h"

namespace kvring {
namespace {

using testing::HasSubstr;

constexpr const char* kPlain =
    R"({"flops_per_s": {"f32": 1e12}, "memory_bytes": 8e9, "memory_bytes_per_s": 1e11,
  "ranks_per_node": 2, "threads": 4, "within_node": {"bytes_per_s": 1e10, "latency_s": 1e-6},
  "between_nodes": {"bytes_per_s": 1e9, "latency_s": 1e-5, "links": 1}})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message_of(const std::string& text) {
  try {
    parse_machine(text, "m.json");
  } catch (const InputFile& error) {
    return error.what();
  }
  return "no error";
}

TEST(Machine, EveryFigureOfTheCatalogueHasKindAndSource) {
  std::set<std::string> names;
  for (const Machine& m : machine_catalogue()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_FALSE(m.description.empty()) << m.name;
    std::vector<Figure> figures = {m.memory_bytes, m.memory_bytes_per_s,      m.ranks_per_node,
                                   m.threads,      m.within_node.bytes_per_s, m.within_node.latency_s};
    for (const auto& flops : m.flops_per_s) {
      if (flops) figures.push_back(*flops);
    }
    if (m.between_nodes)
      for (const Figure& figure :
           {m.between_nodes->bytes_per_s, m.between_nodes->latency_s, m.between_nodes->links})
        figures.push_back(figure);
    for (const Figure& figure : figures) {
      EXPECT_GT(figure.value, 0) << m.name;
      EXPECT_FALSE(figure.kind.empty()) << m.name << " " << figure.value;
      EXPECT_FALSE(figure.source.empty()) << m.name << " " << figure.value;
    }
    EXPECT_GT(m.flops(DType::kBF16), 0);
  }
  for (const char* name :
       {"a100", "h100", "h200", "tpu-v4", "tpu-v5e", "cpu-10gbe", "cpu-25gbe", "cpu-100gbe", "cpu-400gbe"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Machine, FiguresMayBeBareNumbers) {
  const Machine m = parse_machine(kPlain, "m.json");
  EXPECT_EQ(m.flops(DType::kF32), 1e12);
  EXPECT_EQ(m.node_ranks(), 2);
  EXPECT_EQ(m.between_nodes->latency_s.value, 1e-5);
  EXPECT_EQ(m.within_node.bytes_per_s.value, 1e10);
}

TEST(Machine, ATypeItHasNotIsNamed) {
  const Machine m =
      parse_machine(replaced(kPlain, "\"memory_bytes\"", "\"name\": \"mine\", \"memory_bytes\""), "m");
  try {
    m.flops(DType::kBF16);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "machine mine has no rate for dtype bf16; it has f32");
  }
}

TEST(Machine, BadFilesAreRefusedByName) {
  EXPECT_EQ(message_of(kPlain), "no error");
  const auto with = [](const char* from, const std::string& to) {
    return message_of(replaced(kPlain, from, to));
  };
  EXPECT_THAT(with("\"memory_bytes\": 8e9,", ""), HasSubstr("m.json: memory_bytes is missing"));
  EXPECT_THAT(with("8e9", "\"8 GB\""), HasSubstr("memory_bytes is \"8 GB\"; it must be a number"));
  EXPECT_THAT(with("8e9", "-1"), HasSubstr("memory_bytes is -1; it must be 1 to"));
  EXPECT_THAT(with("8e9", "{\"kind\": \"peak\"}"), HasSubstr("memory_bytes.value is missing"));
  EXPECT_THAT(with("8e9", "{\"value\": 1, \"unit\": \"GB\"}"), HasSubstr("memory_bytes.unit is no key"));
  EXPECT_THAT(with("\"threads\"", "\"thread\""), HasSubstr("threads is missing"));
  EXPECT_THAT(with("\"threads\": 4", "\"threads\": 4, \"cores\": 4"),
              HasSubstr("cores is no key of a machine"));
  EXPECT_THAT(with("\"threads\": 4", "\"threads\": 4.5"),
              HasSubstr("threads is 4.5; it must be a whole number"));
  EXPECT_THAT(with("\"bytes_per_s\": 1e10", "\"bytes_per_s\": 0"), HasSubstr("within_node.bytes_per_s is 0"));
  EXPECT_THAT(with("{\"f32\": 1e12}", "1e12"), HasSubstr("flops_per_s must be an object"));
  EXPECT_THAT(with("{\"f32\": 1e12}", "{\"f64\": 1e12}"), HasSubstr("flops_per_s.f64 is no key"));
  EXPECT_THAT(with("{\"f32\": 1e12}", "{\"value\": 1}"), HasSubstr("here may stand bf16, f16, f32"));
  EXPECT_THAT(
      with("\"latency_s\"", "\"latency\": 1, \"latency_s\""),
      HasSubstr("here may stand bytes_per_s, computing_bytes_per_s, computing_s_per_byte, latency_s, links"));
  EXPECT_THAT(with("8e9", "8e999"), HasSubstr("m.json: a number is too large to be read"));
  const auto named = [&](const std::string& name) {
    return with("\"threads\"", "\"name\": \"" + name + "\", \"threads\"");
  };
  EXPECT_EQ(named(std::string(40, 'n')), "no error");
  EXPECT_THAT(named(std::string(41, 'n')), HasSubstr("name has 41 characters; it must be at most 40"));
  EXPECT_THAT(named("two\\nlines"), HasSubstr("name has control characters"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("m.json: the file must be an object"));
  EXPECT_THAT(message_of("{"), HasSubstr("m.json: not JSON at byte 2"));
  EXPECT_THAT(message_of(""), HasSubstr("not JSON"));
  EXPECT_THAT(message_of(std::string(100000, '[')), HasSubstr("not JSON"));
}

TEST(Machine, IsFoundByNameOrFile) {
  EXPECT_EQ(find_machine("h100").node_ranks(), 8);
  const std::string path = testing::TempDir() + "kvring_machine.json";
  std::ofstream(path) << kPlain;
  EXPECT_EQ(find_machine(path).name, "kvring_machine");
  std::filesystem::remove(path);
  try {
    find_machine(path);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("tpu-v5e"));
  }
}

TEST(Machine, RatesOfCallsAreThereTogetherOrNotAtAll) {
  EXPECT_FALSE(parse_machine(kPlain, "m.json").calls);
  const auto with = [](const std::string& calls) {
    return replaced(kPlain, "\"threads\"", "\"calls\": " + calls + ", \"threads\"");
  };
  const Machine machine =
      parse_machine(with(R"({"keys_bytes_per_s": 3e9, "rows_bytes_per_s": 4e9})"), "m.json");
  ASSERT_TRUE(machine.calls);
  EXPECT_EQ(machine.calls->keys_bytes_per_s.value, 3e9);
  EXPECT_EQ(machine.calls->rows_bytes_per_s.value, 4e9);
  EXPECT_THAT(message_of(with(R"({"keys_bytes_per_s": 3e9})")),
              HasSubstr("calls.rows_bytes_per_s is missing"));
  EXPECT_THAT(message_of(with(R"({"keys_bytes_per_s": 0, "rows_bytes_per_s": 4e9})")),
              HasSubstr("calls.keys_bytes_per_s is 0; it must be"));
}

}  // namespace
}  // namespace kvring
