#include "transport/mpi/mpi_wire.h"

#include <thread>
#include <utility>

#include "kvring/error.h"

namespace kvring::mpi {
namespace {

int count_ranks_on_this_host(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  int count = 1;
  check(MPI_Comm_size(host, &count), "MPI_Comm_size");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return count;
}

}  // namespace

MpiWire::MpiWire(MPI_Comm communicator) {
  check(MPI_Comm_dup(communicator, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  ranks_on_this_host_ = count_ranks_on_this_host(comm_);
}

MpiWire::~MpiWire() {
  for (Slot& slot : slots_)
    if (slot.request != MPI_REQUEST_NULL && slot.keep) keep_forever(std::move(slot.keep));
}

void MpiWire::begin_calls() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) throw TransportError("MPI_Finalize was called before the transport was destroyed");
  return_errors_.emplace();
}

MpiWire::Slot& MpiWire::add(wire::Operation& operation, wire::Keep keep) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  operation.index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[operation.index];
  slot.keep = std::move(keep);
  slot.receives = false;
  return slot;
}

wire::Operation MpiWire::send(int to, int tag, std::span<const std::byte> bytes, wire::Keep keep) {
  wire::Operation operation;
  Slot& slot = add(operation, std::move(keep));
  check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_, &slot.request),
        "MPI_Isend");
  return operation;
}

wire::Operation MpiWire::receive(int from, int tag, std::span<std::byte> buffer, wire::Keep keep) {
  wire::Operation operation;
  Slot& slot = add(operation, std::move(keep));
  slot.receives = true;
  check(MPI_Irecv(buffer.data(), static_cast<int>(buffer.size()), MPI_BYTE, from, tag, comm_, &slot.request),
        "MPI_Irecv");
  return operation;
}

wire::Operation MpiWire::allgather(std::shared_ptr<const wire::Gather> gather) {
  wire::Operation operation;
  Slot& slot = add(operation, gather);
  check(MPI_Iallgatherv(gather->mine.data(), static_cast<int>(gather->mine.size()), MPI_BYTE,
                        gather->all.data(), gather->counts.data(), gather->offsets.data(), MPI_BYTE, comm_,
                        &slot.request),
        "MPI_Iallgatherv");
  return operation;
}

std::optional<std::size_t> MpiWire::test(wire::Operation& operation) {
  Slot& slot = slots_[operation.index];
  int flag = 0;
  MPI_Status status;
  // MPI_Test, not MPI_Testsome: MPICH 4.0 reports errors of the latter to the handler of MPI_COMM_WORLD,
  // which by default ends the program.
  check(MPI_Test(&slot.request, &flag, &status), "MPI_Test");
  if (!flag) return std::nullopt;
  int bytes = 0;
  if (slot.receives) check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  slot.keep.reset();
  free_.push_back(operation.index);
  operation = {};
  return static_cast<std::size_t>(bytes);
}

void MpiWire::cancel(const wire::Operation& operation) {
  check(MPI_Cancel(&slots_[operation.index].request), "MPI_Cancel");
}

std::optional<wire::Arrival> MpiWire::take(int tag) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &message, &status), "MPI_Improbe");
  if (found) {
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    const auto buffer = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0');
    wire::Operation operation;
    Slot& slot = add(operation, buffer);
    check(MPI_Imrecv(buffer->data(), bytes, MPI_BYTE, &message, &slot.request), "MPI_Imrecv");
    taken_.push_back({status.MPI_SOURCE, buffer, operation});
  }
  // One that is under way is not waited for: with rendezvous, its sender may be computing.
  for (auto taken = taken_.begin(); taken != taken_.end(); ++taken) {
    if (!test(taken->operation)) continue;
    wire::Arrival arrival{taken->from, std::move(*taken->bytes)};
    taken_.erase(taken);
    return arrival;
  }
  return std::nullopt;
}

void MpiWire::nap(wire::Clock::duration time) { std::this_thread::sleep_for(time); }

void MpiWire::close() { check(MPI_Comm_free(&comm_), "MPI_Comm_free"); }

}  // namespace kvring::mpi
