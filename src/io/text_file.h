// A text file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/file.h"

namespace kvring {

class TextFile {
 public:
  // Makes a temporary file beside `path`, where an existing one is left alone until commit; a symbolic link
  // is followed. Throws InvalidArgument when the path cannot work and InputFile when the file system fails.
  explicit TextFile(const std::string& path);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile();  // without a commit, removes it

  const std::string& temp_path() const noexcept { return temp_path_; }
  // Appends. Throws InputFile.
  void write(std::string_view text);
  // Flushes to the disk and renames to the path. No write may follow. Throws InputFile.
  void commit();

 private:
  void flush();

  std::string path_, target_, temp_path_;
  FileHandle file_;
  std::string buffer_;
  std::int64_t bytes_ = 0;  // on the file
  bool committed_ = false;
};

// A whole file at once.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace kvring
