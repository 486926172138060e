// Files for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "kvring/error.h"
#include "kvring/tensor.h"

namespace kvring {

// A directory that is gone after the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvring_io_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Expects a typed error whose message holds every one of `parts`.
inline void expect_error(ErrorCode code, const std::vector<std::string>& parts,
                         const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.what();
    for (const auto& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error; expected one naming " << (parts.empty() ? "anything" : parts[0]);
}

// The values of the files in tests/data/io.
inline double ramp(std::int64_t i) { return static_cast<double>(i - 7) / 4; }

inline std::string ramp_bytes(DType dtype, std::int64_t first, std::int64_t count) {
  std::string bytes(static_cast<std::size_t>(count) * dtype_bytes(dtype), '\0');
  for (std::int64_t i = 0; i < count; ++i) store_element(bytes.data(), dtype, i, ramp(first + i));
  return bytes;
}

inline std::string data_file(const std::string& name) { return std::string(KVRING_IO_DATA "/") + name; }

}  // namespace kvring
