#include "kvring/error.h"

namespace kvring {

const char* error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kInputFile:
      return "InputFile";
    case ErrorCode::kTransport:
      return "Transport";
    case ErrorCode::kTimeout:
      return "Timeout";
    case ErrorCode::kOutOfBudget:
      return "OutOfBudget";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Internal";
}

}  // namespace kvring
