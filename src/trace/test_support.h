// Traces for the tests of this folder.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "trace/trace.h"
#include "trace/write.h"

namespace kvring {

// A ring of `ranks` over `laps`: every step takes a microsecond, then a block comes late by 200 ns, takes 50
// ns more, and at the start of each later lap there is a wait of 25 ns for memory.
inline Trace sample_trace(int ranks, int laps = 2) {
  using What = Operation::What;
  Trace trace;
  trace.info = {.version = "0.0.0",
                .problem = {{"q_len", 64}},
                .problem_text = "64 queries x 64 keys",
                .layout = "contiguous",
                .schedule = "ring",
                .transport = "mpi",
                .threads = 1,
                .simulated = false};
  for (int r = 0; r < ranks; ++r) {
    RankTrace rank{"node" + std::to_string(r / 2), 1e-6, {10, 2, 8}, {}};
    const int next = (r + 1) % ranks, before = (r + ranks - 1) % ranks;
    std::int64_t now = 0;
    const auto add = [&](Operation o, std::int64_t duration) {
      o.posted = at_nanoseconds(now);
      o.done = at_nanoseconds(now += duration);
      rank.operations.push_back(o);
    };
    for (std::uint32_t lap = 0; lap < static_cast<std::uint32_t>(laps); ++lap) {
      if (lap > 0) add({.what = What::kWaitSend, .block = r, .lap = lap, .peer = next}, 25);
      add({.what = What::kPack, .block = r, .lap = lap}, 100);
      for (int step = 0; step < ranks; ++step) {
        const int block = (r - step + ranks) % ranks;
        const bool more = step + 1 < ranks;
        if (more) {
          Operation send{
              .what = What::kSend, .block = block, .lap = lap, .step = step + 1, .peer = next, .bytes = 4096};
          send.posted = at_nanoseconds(now);
          send.done = at_nanoseconds(now + 1250);
          rank.operations.push_back(send);
          Operation receive{.what = What::kReceive,
                            .block = (r - step - 1 + ranks) % ranks,
                            .lap = lap,
                            .step = step + 1,
                            .peer = before,
                            .bytes = 4096};
          receive.posted = at_nanoseconds(now);
          receive.began = at_nanoseconds(now + 1200);
          receive.done = at_nanoseconds(now + 1250);
          rank.operations.push_back(receive);
        }
        add({.what = What::kAttend, .block = block, .lap = lap, .step = step, .tiles = {5, 1, 4}}, 1000);
        if (!more) continue;
        const int arriving = (r - step - 1 + ranks) % ranks;
        add({.what = What::kWaitLate, .block = arriving, .lap = lap, .step = step + 1, .peer = before}, 200);
        add({.what = What::kWaitTransfer, .block = arriving, .lap = lap, .step = step + 1, .peer = before},
            50);
      }
      add({.what = What::kFinish, .block = r, .lap = lap, .step = ranks - 1}, 75);
    }
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

inline std::string written(const Trace& trace) {
  std::string text;
  write_trace(trace, [&](std::string_view part) { text += part; });
  return text;
}

// A file that is gone after the test.
class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvring_trace_XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    if (fd < 0) throw std::runtime_error("mkstemp failed");
    ::close(fd);
    path_ = pattern;
    std::ofstream(path_, std::ios::binary) << content;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvring
