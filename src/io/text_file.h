// Small text results that appear whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace kvring {

// Writes `text` to a temporary file beside `path` and renames it into place. Throws InputFile naming the path
// and the cause; the file that was there before is then untouched.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace kvring
