// What the process tells its caller.
#pragma once

#include "kvring/error.h"

namespace kvring::cli {

enum ExitCode : int {
  kDone = 0,
  kInternalError = 1,
  kUsage = 2,
  kInputFileError = 3,
  kTransportFailed = 4,
  kVerificationFailed = 5,
  kWouldNotFit = 6,
};

// The one place where a kind of error becomes an exit code.
constexpr ExitCode exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return kUsage;
    case ErrorCode::kInputFile:
      return kInputFileError;
    case ErrorCode::kTransport:
    case ErrorCode::kTimeout:
      return kTransportFailed;
    case ErrorCode::kOutOfBudget:
      return kWouldNotFit;
    case ErrorCode::kInternal:
      return kInternalError;
  }
  return kInternalError;
}

}  // namespace kvring::cli
