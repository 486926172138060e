// How an error reaches who started the process: a sentence on stderr and, where --json asks for it, an object
// on stdout. Rank 0 speaks for all.
#pragma once

#include <string>

#include "kvring/error.h"

namespace kvring::cli {

// Under mpirun every process fails alike on a bad command line: one of them says so.
bool prints_messages();

// A command line that cannot be understood may still say that JSON is wanted.
void want_json_errors(bool wanted) noexcept;

// The object, if it is wanted and this is rank 0; the first call counts. Flushed: the process may be about to
// end by a signal or MPI_Abort. Any thread.
void print_json_error(ErrorCode error, const std::string& what, int code);

}  // namespace kvring::cli
