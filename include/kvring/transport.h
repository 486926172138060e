// The seam between the executor and whatever moves bytes. One Transport object is one rank's end.
//
// A rank only ever exchanges blocks with named peers, in order: between a pair of ranks the n-th receive
// posted matches the n-th send posted. Everything is non-blocking but wait_receive(), wait_send(),
// allgather() and barrier(), and those give up with Timeout after `deadline` seconds without progress: in
// which no rank completed anything and none called progress(). Where ranks are processes, a rank from which
// nothing at all was heard for that long ends the ring too, whether anybody waits for it or not.
//
// After an error: whoever catches what a wait threw, or fails in any other way, calls fail(), so that the
// others end too, and then wait_send() on each of its outstanding sends, before it frees what others may
// still read. These throw; from then on the end is only good for its destructor.
//
// Thread safety: one Transport is used by one thread at a time, but for fail(), verdict() and completed().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  std::uint32_t step = 0;   // the receiver attends the payload in this step
  std::int32_t owner = 0;   // rank whose tokens it is about
  std::uint32_t cargo = 0;  // block, queries, partials or rows
  std::int32_t share = -1;  // rank whose share of the heads it carries; -1: all heads of the lap
  // Filled in by the transport, whatever the sender put there.
  std::uint64_t sequence = 0;  // per direction of a pair of ranks, from 0
  std::uint64_t bytes = 0;     // payload length
  std::uint64_t checksum = 0;  // XXH3 of the payload; 0 where a pointer is passed
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

// What a wait was for, in words for the error message: "block 5 (lap 2, step 4 of 8)".
using WaitLabel = std::string;

// Who is to blame for a failure, as far as one rank can tell.
struct Verdict {
  int culprit = -1;  // a rank; -1: nobody that this rank could name
  // How long, in seconds, nothing was heard of any rank that does not even answer; 0 if all do.
  double silent_s = 0;
  std::string text;         // "rank 2 does not answer, ..."; empty: no failure is known
  std::vector<int> silent;  // the ranks that do not answer, the first suspect first
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // A posted send or receive. A send is valid until wait_send() returned, a receive until release(); a wait
  // that throws leaves it valid.
  using Request = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const char* name() const noexcept = 0;  // "inproc", "mpi"

  // How many of the ranks share this host's cores.
  virtual int ranks_on_this_host() const noexcept { return size(); }

  // True when receives hand out the sender's own memory: no copy, and no arriving buffer is needed.
  virtual bool passes_pointers() const noexcept = 0;

  // The payload must stay alive and unchanged until wait_send() returns, or throws after a failure: with a
  // copying transport when the bytes have left, with a pointer-passing one when the receiver, and everyone
  // it passed the pointer on to, released it. Throws InvalidArgument unless `to` is another rank.
  virtual Request post_send(int to, const MessageHeader& header, std::span<const std::byte> payload) = 0;

  // Passes on what `receive`, which has not been released, brings: at once when it is there, otherwise as
  // soon as it arrives, without this rank's doing. It goes out with the header it came with, step one up, so
  // that the next rank too can see whether it is what was due. Ends with wait_send(), and until then the
  // receive's buffer must stay as it is; one rank may pass a block on once.
  virtual Request post_forward(Request receive, int to) = 0;

  // `buffer` receives the payload, which may be shorter; it must stay alive until wait_receive() returns or
  // throws. Empty when passes_pointers().
  virtual Request post_receive(int from, std::span<std::byte> buffer) = 0;

  struct Received {
    MessageHeader header;
    std::span<const std::byte> payload;  // inside `buffer`, or the sender's memory
    Clock::time_point began;             // when this rank first heard of it: its sender had it ready
    Clock::time_point arrived;           // when all of it was here; what lies between is the transfer
  };
  // Blocks until the receive is complete. Throws Timeout ("rank 3 waited 30.0 s for <what> from rank 2")
  // or TransportError.
  virtual Received wait_receive(Request receive, const WaitLabel& what) = 0;
  // Ends a receive that was waited for. Tells a pointer-passing sender that this rank has finished with the
  // payload; to whom it passed the pointer on keeps reading.
  virtual void release(Request receive) = 0;
  // Blocks until the payload may be changed. Throws as wait_receive ("... to rank 2"). After a failure it
  // throws only when no rank reads payloads any more (each saw the error in a wait, failed or finished), or
  // at the deadline.
  virtual void wait_send(Request send, const WaitLabel& what) = 0;
  // When the request was complete: a receive when all had arrived, a send when the payload may be changed.
  // Empty before. Moves nothing along. Any thread.
  virtual std::optional<Clock::time_point> completed(Request request) const = 0;
  // Moves pending transfers along, and tells all ranks that this one is alive; called between pieces of
  // computation, several times per deadline. Cheap. Throws as a wait does when the ring has failed, so that
  // nobody computes on for nothing.
  virtual void progress() = 0;

  // Collectives, for making a ring and gathering reports; every rank must call them in the same order.
  // Returns size() byte strings, by rank. Strings may differ in length.
  virtual std::vector<std::string> allgather(const std::string& mine, const WaitLabel& what) = 0;
  virtual void barrier(const WaitLabel& what) = 0;

  // Tells every other rank that this one failed: their waits throw TransportError "rank 3 failed: <reason>"
  // in bounded time, and so do this one's. It also says that this rank reads no received payload any more.
  // Never throws, may be called from any thread, idempotent: of all ranks' failures the first one counts.
  virtual void fail(const std::string& reason) noexcept = 0;

  // After a failure that a wait has thrown. Any thread.
  virtual Verdict verdict() const = 0;
};

// A closed world of `ranks` ends in one process; blocks pass by pointer. Each end is driven by its own
// thread. An end that is destroyed without fail() is taken to have finished: waits for what it can no longer
// do throw TransportError, and its sends that nobody has received are withdrawn. Throws InvalidArgument
// unless 1 <= ranks <= 1024 and the deadline is above 0 and at most 1e6 s.
std::vector<std::unique_ptr<Transport>> make_inproc_transports(int ranks, double deadline_s);

}  // namespace kvring
