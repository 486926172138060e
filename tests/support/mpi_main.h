// The main function of a GoogleTest program that mpirun starts: ranks other than 0 only print what fails.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

namespace kvring::test {

class QuietPrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.message());
  }
};

inline int run_mpi_tests(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new QuietPrinter);
  }
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}

}  // namespace kvring::test
