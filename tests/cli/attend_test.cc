// What attend promises to whoever runs it.
#include <gmock/gmock.h>

#include "run_kvring.h"

namespace kvring::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Attend : public KvringTest {
 protected:
  RunResult attend(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"attend", "--input", "qkv.safetensors", "--causal", "--tile", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kvring(arguments);
  }
};

TEST_F(Attend, FilesAndDigestsAreTheSameAtEveryRingSizeAndLayout) {
  generate({"--dtype", "bf16"});
  const RunResult alone = attend({"--output", "one.safetensors", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const std::string expected = read_file(file("one.safetensors"));
  for (const char* layout : {"contiguous", "zigzag", "striped"}) {
    for (const char* ranks : {"1", "2", "3", "4", "5"}) {
      const RunResult ring = attend(
          {"--ranks", ranks, "--layout", layout, "--threads", "1", "--output", "ring.safetensors", "--json"});
      ASSERT_EQ(ring.code, 0) << ring.err;
      EXPECT_EQ(read_file(file("ring.safetensors")), expected) << layout << ranks;
      EXPECT_EQ(ring.json()["output_digest"], alone.json()["output_digest"]) << layout << ranks;
      EXPECT_EQ(ring.json()["lse_digest"], alone.json()["lse_digest"]) << layout << ranks;
      EXPECT_EQ(ring.json()["bits_invariant"], true);
    }
  }
  EXPECT_THAT(names(), ElementsAre("one.safetensors", "qkv.safetensors", "ring.safetensors"));
}

TEST_F(Attend, EverySchedulesDigestsAreThoseOfOneRank) {
  generate({"--dtype", "bf16"});
  const nlohmann::json alone = attend({"--json"}).json();
  for (const char* schedule : {"ring", "all-gather", "pass-q", "ulysses", "tree"}) {
    const RunResult result =
        attend({"--ranks", "2", "--schedule", schedule, "--trace", "run.json", "--json"});
    ASSERT_EQ(result.code, 0) << schedule << ": " << result.err;
    EXPECT_EQ(result.json()["schedule"], schedule);
    EXPECT_EQ(result.json()["output_digest"], alone["output_digest"]) << schedule;
    EXPECT_EQ(result.json()["lse_digest"], alone["lse_digest"]) << schedule;
    EXPECT_EQ(kvring({"trace", "run.json", "-o", "run.svg"}).code, 0) << schedule;
  }
}

TEST_F(Attend, DigestsTellDifferentResultsApart) {
  generate();
  const auto digests = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const nlohmann::json json = attend(arguments).json();
    return std::pair(json["output_digest"], json["lse_digest"]);
  };
  EXPECT_EQ(digests({}), digests({"--ranks", "3"}));
  EXPECT_NE(digests({}).first, digests({"--window", "20,-1"}).first);
  EXPECT_NE(digests({}).second, digests({"--softcap", "2"}).second);
  EXPECT_NE(digests({}).first, digests({"--output-dtype", "f16"}).first);
  EXPECT_EQ(digests({}).second, digests({"--output-dtype", "f16"}).second);
}

TEST_F(Attend, JsonHasEveryKey) {
  generate();
  const RunResult result = attend({"--ranks", "3", "--json", "--layout", "striped", "--stripe", "32",
                                   "--threads", "2", "--schedule", "ring", "--heads-per-lap", "1",
                                   "--timeout", "20", "--transport", "inproc", "--rank-memory", "1GiB"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const nlohmann::json json = result.json();
  for (const char* key : {"schema_version", "version", "isa", "problem", "ranks", "layout", "schedule",
                          "transport", "bits_invariant", "wall_s", "output_digest", "lse_digest", "per_rank"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["layout"], "striped");
  EXPECT_EQ(json["schedule"], "ring");
  EXPECT_EQ(json["transport"], "inproc");
  EXPECT_EQ(json["problem"]["q_len"], 300);
  EXPECT_EQ(json["problem"]["causal"], true);
  EXPECT_EQ(json["problem"]["cu_seqlens_q"], nlohmann::json::array());
  ASSERT_EQ(json["per_rank"].size(), 3u);
  std::int64_t tokens = 0;
  for (const nlohmann::json& rank : json["per_rank"]) {
    for (const char* key : {"rank", "tokens", "compute_s", "exposed_wait_s", "bytes_sent", "hops",
                            "tiles_full", "tiles_partial", "tiles_skipped", "ledger_bytes", "peak_bytes"})
      EXPECT_TRUE(rank.contains(key)) << key;
    tokens += rank["tokens"].get<std::int64_t>();
    std::int64_t held = 0;
    for (const auto& [name, bytes] : rank["ledger_bytes"].items()) held += bytes.get<std::int64_t>();
    EXPECT_GE(held, rank["peak_bytes"].get<std::int64_t>());
    EXPECT_GT(rank["hops"], 0);
  }
  EXPECT_EQ(tokens, 300);
}

TEST_F(Attend, PrintsATableForPeople) {
  generate();
  const RunResult result = attend({"--ranks", "2"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");  // not a terminal: no progress
  for (const char* text :
       {"300 queries x 300 keys", "causal", "2 ranks, zigzag layout", "out digest", "lse digest"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(Attend, CutAtTokensSaysThatBitsMayDiffer) {
  generate();
  const RunResult result = attend({"--ranks", "3", "--cut", "tokens", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["bits_invariant"], false);
  EXPECT_EQ(attend({"--accumulation", "online", "--json"}).json()["bits_invariant"], false);
}

TEST_F(Attend, PackedDocumentsFromListsAndFiles) {
  generate();
  write_file(file("lengths"), "0\n100\n300\n");
  const RunResult list =
      attend({"--cu-seqlens-q", "0,100,300", "--cu-seqlens-kv", "0,100,300", "--ranks", "3", "--json"});
  const RunResult from_file = attend({"--cu-seqlens-q", "@lengths", "--cu-seqlens-kv", "@lengths", "--json"});
  ASSERT_EQ(list.code, 0) << list.err;
  ASSERT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(list.json()["output_digest"], from_file.json()["output_digest"]);
  EXPECT_EQ(list.json()["problem"]["cu_seqlens_kv"], nlohmann::json({0, 100, 300}));
  EXPECT_NE(list.json()["output_digest"], attend({"--json"}).json()["output_digest"]);
}

// A .npy file of f32 values, as NumPy writes it.
std::string npy(const std::string& shape, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  return bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST_F(Attend, NpyWithoutBatchGivesNpyWithoutBatch) {
  std::vector<float> values(40 * 2 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) / 7;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_file(file(name), npy("(40, 2, 8)", values));
  const std::vector<std::string> inputs = {"attend", "--q",   "q.npy",  "--k", "k.npy",
                                           "--v",    "v.npy", "--tile", "8"};
  std::vector<std::string> arguments = inputs;
  for (const char* word : {"--ranks", "3", "--output", "out.npy", "--lse", "lse.npy", "--quiet"})
    arguments.push_back(word);
  const RunResult result = kvring(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(read_file(file("out.npy")), HasSubstr("'shape': (40, 2, 8)"));
  EXPECT_THAT(read_file(file("lse.npy")), HasSubstr("'shape': (2, 40)"));
  EXPECT_THAT(names(), ElementsAre("k.npy", "lse.npy", "out.npy", "q.npy", "v.npy"));
}

TEST_F(Attend, SinksChangeTheResult) {
  generate();
  write_file(file("sinks.npy"), npy("(4,)", {0.5f, 1, 2, 3}));
  const RunResult with = attend({"--sinks", "sinks.npy", "--json", "--ranks", "2"});
  ASSERT_EQ(with.code, 0) << with.err;
  EXPECT_NE(with.json()["lse_digest"], attend({"--json"}).json()["lse_digest"]);
  EXPECT_EQ(with.json()["problem"]["sinks"], true);
}

// A file whose q, k, v (1 token, 1 head, dim 1) are followed by one more tensor.
std::string tiny_safetensors(const std::string& extra_name) {
  std::string header = "{";
  int offset = 0;
  for (const std::string& name : {std::string("q"), std::string("k"), std::string("v"), extra_name}) {
    header += (offset == 0 ? "\"" : ",\"") + name +
              "\":{\"dtype\":\"F32\",\"shape\":" + (name == extra_name ? "[1]" : "[1,1,1]") +
              ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + 4) + "]}";
    offset += 4;
  }
  header += "}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size() & 0xff);
  bytes[1] = static_cast<char>(header.size() >> 8);
  return bytes + header + std::string(16, '\0');
}

TEST_F(Attend, SinksInTheInputAreNotUsedSilently) {
  write_file(file("tiny.safetensors"), tiny_safetensors("sinks"));
  const RunResult without = kvring({"attend", "--input", "tiny.safetensors", "--json"});
  EXPECT_EQ(without.code, 0);
  EXPECT_THAT(without.err, HasSubstr("has a tensor sinks, which is not used; pass --sinks tiny.safetensors"));
  EXPECT_EQ(without.json()["problem"]["sinks"], false);
  const RunResult with =
      kvring({"attend", "--input", "tiny.safetensors", "--sinks", "tiny.safetensors", "--json"});
  EXPECT_EQ(with.err, "");
  EXPECT_EQ(with.json()["problem"]["sinks"], true);
}

TEST_F(Attend, EmptySequencesWork) {
  generate({"--seed", "1"});
  ASSERT_EQ(
      kvring({"generate", "--shape", "1,5,2,8", "--kv-shape", "1,0,2,8", "-o", "no_keys.safetensors"}).code,
      0);
  ASSERT_EQ(kvring({"generate", "--shape", "2,0,2,8", "-o", "nothing.safetensors"}).code, 0);
  for (const char* input : {"no_keys.safetensors", "nothing.safetensors"}) {
    for (const char* ranks : {"1", "3"}) {
      const RunResult result =
          kvring({"attend", "--input", input, "--ranks", ranks, "--output", "out.safetensors", "--json"});
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(kvring({"verify", "--input", input, "--ranks", ranks}).code, 0);
    }
  }
}

TEST_F(Attend, AsManyRanksAsAreAllowed) {
  generate();
  const RunResult result = attend({"--ranks", "1024", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["per_rank"].size(), 1024u);
  EXPECT_EQ(result.json()["output_digest"], attend({"--json"}).json()["output_digest"]);
}

// Signals end a run without leaving a temporary file behind.
TEST_F(Attend, LeavesNothingWhenInterrupted) {
  ASSERT_EQ(kvring({"generate", "--shape", "1,16384,8,128", "--kv-shape", "1,16384,1,128", "--dtype", "bf16",
                    "-o", "big.safetensors"})
                .code,
            0);
  const pid_t pid = start({KVRING_PROGRAM, "attend", "--input", "big.safetensors", "--ranks", "2", "--output",
                           "out.safetensors", "--trace", "run.json", "--record", "records"});
  for (int i = 0; i < 1000 && names().size() < 4; ++i) ::usleep(10000);
  ASSERT_EQ(names().size(), 4u) << "no temporary files came up";
  ::usleep(200'000);
  ::kill(pid, SIGTERM);
  const RunResult result = wait(pid);
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_EQ(result.err, "kvring: ended by SIGTERM\n");
  EXPECT_THAT(names(), ElementsAre("big.safetensors", "records"));
  const RunResult diagnosis =
      kvring({"diagnose", file("records/rank-0.json"), file("records/rank-1.json"), "--json"});
  EXPECT_EQ(diagnosis.code, 0) << diagnosis.err;
}

}  // namespace
}  // namespace kvring::cli
