// Typed errors. Every failure the library reports is one of these; it never aborts the host program.
#pragma once

#include <stdexcept>
#include <string>

namespace kvring {

enum class ErrorCode {
  kInvalidArgument,  // a value that no call may have; the message names it and what would work
  kUnsupported,      // a combination the support table does not list
  kInputFile,        // a file that is missing, truncated or not what it says
  kTransport,        // a peer or the network failed, or the ranks disagree
  kTimeout,          // a wait passed its deadline without progress
  kOutOfBudget,      // the job does not fit the memory it was given
  kInternal,         // a fault of kvring itself
};

// "InvalidArgument", "Unsupported", ... : stable names, used in messages and in `--json`.
const char* error_code_name(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

template <ErrorCode kCode>
class TypedError : public Error {
 public:
  explicit TypedError(const std::string& message) : Error(kCode, message) {}
};

using InvalidArgument = TypedError<ErrorCode::kInvalidArgument>;
using Unsupported = TypedError<ErrorCode::kUnsupported>;
using InputFile = TypedError<ErrorCode::kInputFile>;
using TransportError = TypedError<ErrorCode::kTransport>;
using Timeout = TypedError<ErrorCode::kTimeout>;
using OutOfBudget = TypedError<ErrorCode::kOutOfBudget>;
using Internal = TypedError<ErrorCode::kInternal>;

}  // namespace kvring
