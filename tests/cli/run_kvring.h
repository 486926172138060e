// Runs the built program as a user would, in a directory of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvring::cli {

struct RunResult {
  int code = -1;  // 128 + signal when one ended it
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class KvringTest : public testing::Test {
 protected:
  KvringTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvring_cli_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    directory_ = pattern;
  }
  ~KvringTest() override { std::filesystem::remove_all(directory_); }

  std::string file(const std::string& name) const { return (directory_ / name).string(); }

  // All names in the directory, hidden ones too, in order.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  // Starts in the directory, so that relative names are files in it.
  pid_t start(const std::vector<std::string>& command) const {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, directory_.c_str());
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    const int create = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, (output_ / "out").c_str(), create, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (output_ / "err").c_str(), create, 0600);
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0) << argv[0];
    return pid;
  }

  RunResult wait(pid_t pid) const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(output_ / "out"),
            read_file(output_ / "err")};
  }

  RunResult run_command(const std::vector<std::string>& command) const { return wait(start(command)); }

  RunResult kvring(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), KVRING_PROGRAM);
    return run_command(arguments);
  }

  // q, k and v of a few hundred tokens in qkv.safetensors.
  void generate(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"generate",   "--shape", "1,300,4,16",     "--kv-shape",
                                          "1,300,2,16", "-o",      "qkv.safetensors"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = kvring(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
  }

 private:
  struct OutputDirectory {
    OutputDirectory() {
      std::string pattern = (std::filesystem::temp_directory_path() / "kvring_cli_XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
      path = pattern;
    }
    ~OutputDirectory() { std::filesystem::remove_all(path); }
    std::filesystem::path operator/(const char* name) const { return path / name; }
    std::filesystem::path path;
  };

  std::filesystem::path directory_;
  OutputDirectory output_;
};

}  // namespace kvring::cli
