// The seam between the executor and whatever moves bytes. One Transport object is one rank's end.
//
// A rank only ever exchanges blocks with named peers, in order: between a pair of ranks the n-th receive
// posted matches the n-th send posted. Everything is non-blocking but wait(), allgather() and barrier(),
// and those give up with Timeout after `deadline` seconds without progress.
//
// Thread safety: one Transport is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kvring {

// Precedes every payload. Checked on arrival, so that a stale, misrouted or truncated block is an error
// and never a wrong answer.
struct MessageHeader {
  std::uint64_t problem_digest = 0;
  std::uint32_t call = 0;  // how many attend() calls this ring made before
  std::uint32_t lap = 0;
  std::uint32_t step = 0;      // the receiver attends the payload in this step
  std::int32_t owner = 0;      // rank whose shard it is
  std::uint64_t sequence = 0;  // per direction of a pair of ranks, from 0
  std::uint64_t bytes = 0;     // payload length
  std::uint64_t checksum = 0;  // XXH3 of the payload; 0 where a pointer is passed
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

// What a wait was for, in words for the error message: "block 5 (lap 2, step 4 of 8)".
using WaitLabel = std::string;

class Transport {
 public:
  using Request = std::uint64_t;  // a posted send or receive; valid until waited for

  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const char* name() const noexcept = 0;  // "inproc", "mpi"

  // True when receives hand out the sender's own memory: no copy, and no arriving buffer is needed.
  virtual bool passes_pointers() const noexcept = 0;

  // The payload must stay alive and unchanged until wait(send) returns: with a copying transport when
  // the bytes have left, with a pointer-passing one when the receiver, and everyone it passed the pointer
  // on to, released it.
  virtual Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) = 0;

  // `buffer` receives the payload (empty when passes_pointers()).
  virtual Request post_receive(int from, std::span<std::byte> buffer) = 0;

  struct Received {
    MessageHeader header;
    std::span<const std::byte> payload;  // inside `buffer`, or the sender's memory
  };
  // Blocks until the receive is complete. Throws Timeout ("rank 3 waited 30.0 s for <what> from rank 2")
  // or TransportError.
  virtual Received wait_receive(Request receive, const WaitLabel& what) = 0;
  // Tells a pointer-passing sender that this rank has finished with the payload; a no-op elsewhere.
  virtual void release(Request receive) = 0;
  // Blocks until the payload may be changed. Throws as wait_receive ("... to rank 2").
  virtual void wait_send(Request send, const WaitLabel& what) = 0;
  // True when waiting for the request would return at once. Also makes progress.
  virtual bool ready(Request request) = 0;
  // Moves pending transfers along; called between pieces of computation. Cheap.
  virtual void progress() = 0;

  // Collectives, for making a ring and gathering reports; every rank must call them in the same order.
  // Returns size() byte strings, by rank. Strings may differ in length.
  virtual std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) = 0;
  virtual void barrier(const WaitLabel& what) = 0;

  // Tells every other rank that this one failed: their waits throw TransportError with `reason` in
  // bounded time. Never throws, may be called from any thread, idempotent.
  virtual void fail(const std::string& reason) noexcept = 0;
};

// A closed world of `ranks` ends in one process; blocks pass by pointer. Each end is driven by its own
// thread. An end that is destroyed without fail() is taken to have finished. Throws InvalidArgument unless 1
// <= ranks <= 1024.
std::vector<std::unique_ptr<Transport>> make_inproc_transports(int ranks, double deadline_s);

}  // namespace kvring
