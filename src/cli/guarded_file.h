// A text file that appears whole or not at all, whatever ends the process meanwhile.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "cli/signals.h"
#include "io/text_file.h"

namespace kvring::cli {

// While one lives there may be no other TemporaryFiles.
class GuardedFile {
 public:
  // Throws as TextFile does.
  explicit GuardedFile(const std::string& path) {
    const InterruptFlag until_listed;  // a signal now would find the file, and not its name
    file_ = std::make_unique<TextFile>(path);
    temporaries_.emplace(std::vector<std::string>{file_->temp_path()});
    if (until_listed.signal() != 0) std::raise(until_listed.signal());
  }

  TextFile& operator*() { return *file_; }
  TextFile* operator->() { return file_.get(); }

 private:
  std::optional<TemporaryFiles> temporaries_;  // outlives the file
  std::unique_ptr<TextFile> file_;
};

}  // namespace kvring::cli
