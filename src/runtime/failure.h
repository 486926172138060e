// What the other ranks are told when one fails.
#pragma once

#include <exception>
#include <string>

namespace kvring {

// In a catch (...): the words of the exception. A host's callback may throw anything.
inline std::string current_failure() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception without words";
  }
}

}  // namespace kvring
