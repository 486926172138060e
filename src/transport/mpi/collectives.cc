// The collectives of the MPI transport: non-blocking ones, so that they too have deadlines and hear of
// failures.
#include <algorithm>
#include <utility>

#include "kvring/error.h"
#include "transport/mpi/check.h"
#include "transport/mpi/mpi_transport.h"

namespace kvring::mpi {

// A rank that finished without beginning the collective that this rank is in; -1: none.
int MpiTransport::finished_early() const {
  for (int r = 0; r < size_; ++r)
    if (control_->finished(r) && control_->finished(r)->collectives < collectives_) return r;
  return -1;
}

void MpiTransport::wait_collective(MPI_Request& request, const WaitLabel& what) {
  const auto poll = [&] {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return Outcome::kDone;
    return finished_early() < 0 ? Outcome::kPending : Outcome::kNever;
  };
  guarded([&] {
    wait({.what = what,
          .poll = poll,
          .peers = [] { return std::string("from the other ranks"); },
          .finished = [&] { return finished_early(); }});
  });
}

namespace {

// Memory of an allgather. After an error it cannot be cancelled, so it must outlive the call.
struct Gathering {
  std::string mine;
  std::uint64_t length = 0;
  std::vector<std::uint64_t> lengths;
  std::vector<int> counts, offsets;
  std::string arriving;
};

// What everybody sends in the round that begins at `begin`. The whole round fits one message of MPI's int
// counts.
void plan_round(Gathering& gathering, std::uint64_t begin, std::uint64_t most) {
  int offset = 0;
  for (std::size_t r = 0; r < gathering.lengths.size(); ++r) {
    const std::uint64_t length = gathering.lengths[r];
    gathering.counts[r] = length > begin ? static_cast<int>(std::min(most, length - begin)) : 0;
    gathering.offsets[r] = offset;
    offset += gathering.counts[r];
  }
  gathering.arriving.resize(static_cast<std::size_t>(offset));
}

}  // namespace

std::vector<std::string> MpiTransport::allgather(const std::string& mine, const WaitLabel& what) {
  throw_if_failed();
  ++collectives_;
  const std::size_t ranks = static_cast<std::size_t>(size_);
  const auto gathering = std::make_shared<Gathering>();
  gathering->mine = mine;
  gathering->length = mine.size();
  for (auto* numbers : {&gathering->counts, &gathering->offsets}) numbers->resize(ranks);
  gathering->lengths.resize(ranks);
  std::vector<std::string> all(ranks);
  try {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&gathering->length, 1, MPI_UINT64_T, gathering->lengths.data(), 1, MPI_UINT64_T,
                         comm_, &request),
          "MPI_Iallgather");
    wait_collective(request, what);
    const std::uint64_t longest = *std::ranges::max_element(gathering->lengths);
    const std::uint64_t most = std::max<std::uint64_t>(1, largest_piece_ / ranks);
    for (std::uint64_t begin = 0; begin < longest; begin += most) {
      plan_round(*gathering, begin, most);
      const int count = gathering->counts[static_cast<std::size_t>(rank_)];
      check(MPI_Iallgatherv(gathering->mine.data() + std::min<std::uint64_t>(begin, gathering->length), count,
                            MPI_BYTE, gathering->arriving.data(), gathering->counts.data(),
                            gathering->offsets.data(), MPI_BYTE, comm_, &request),
            "MPI_Iallgatherv");
      wait_collective(request, what);
      for (std::size_t r = 0; r < ranks; ++r)
        all[r].append(gathering->arriving, static_cast<std::size_t>(gathering->offsets[r]),
                      static_cast<std::size_t>(gathering->counts[r]));
    }
  } catch (...) {
    keep_forever(gathering);
    throw;
  }
  return all;
}

void MpiTransport::barrier(const WaitLabel& what) {
  throw_if_failed();
  ++collectives_;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  wait_collective(request, what);
}

}  // namespace kvring::mpi
