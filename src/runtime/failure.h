// What the other ranks are told when one fails.
#pragma once

#include <exception>
#include <string>

namespace kvring {

// In a catch (...): the words of the exception. A host's callback may throw anything, and where memory has
// run out there may be none for words either.
inline std::string current_failure() noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return "an exception without words";
    }
  } catch (...) {
    return "out of memory";  // short enough to need none
  }
}

}  // namespace kvring
