// Files that appear under their name only when they are complete.
#pragma once

#include <filesystem>
#include <string>

#include "io/file.h"

namespace kvring {

// The file that `path` stands for, after checking that one can be put there. Throws InvalidArgument.
std::string resolve_target(const std::string& path);
// Creates a new file beside `target`, under a name that no other run uses. Throws InvalidArgument or
// InputFile.
FileHandle create_temporary(const std::string& path, const std::filesystem::path& target,
                            std::string& temp_path);
// Whether everything is on the disk and the file closed; if not, errno says why.
bool sync_and_close(FileHandle& file);

}  // namespace kvring
