// What one rank does of a job: its own shards in, its part of the output out. The same code runs on a thread
// and in an MPI process.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/signals.h"
#include "io/output.h"
#include "io/text_file.h"
#include "kvring/ring.h"
#include "tensor/buffer.h"
#include "trace/align.h"
#include "trace/trace.h"

namespace kvring::cli {

using Json = nlohmann::ordered_json;

// Other ranks may still read this one's blocks when it has finished or failed. The destructor waits until
// they do not, so it must run on the rank's own thread, and after a failure only once the others have been
// told (Transport::fail). `job` and `transport` must outlive it.
class RankWork {
 public:
  RankWork(const Job& job, Transport& transport);

  // The steps, each to be called once, in this order, by all ranks. All throw kvring::Error.
  //
  // Creates the output files under temporary names. First, so that a full disk shows before the work.
  void open_outputs();
  // Makes the ring, which is where a rank that would not fit is refused, and reads the rank's shards.
  void load();
  // `progress` is called with the share done.
  void attend(const std::function<void(double)>& progress);
  // Writes what the rank did last to `folder`/rank-R.json, where the ring was made; once. Any thread. Throws
  // nothing: there is another error on its way.
  void write_record(const std::string& folder, const std::string& reason) noexcept;
  // Writes the rank's part.
  void write_outputs();
  // Gathers what all ranks did and, on rank 0, writes it. For a job with a trace.
  void write_trace(const TraceInfo& info);
  // The outputs appear under their names: last, when nothing else can fail any more.
  void commit_outputs();
  // On rank 0 what each rank has to report, by rank: the entry of `per_rank` in JSON, and beside it what is
  // the sum or maximum over ranks. Empty on the others.
  std::vector<Json> gather_reports();

  const Shard& q_shard() const { return job_.layouts.q.shards[rank()]; }
  ConstTensorView out() const { return as_const(out_view_); }
  const LseView& lse() const { return lse_view_; }

 private:
  std::size_t rank() const { return static_cast<std::size_t>(transport_.rank()); }
  void read_shards();
  void commit_files();
  Json report() const;

  const Job& job_;
  Transport& transport_;
  std::vector<BarrierTimes> barriers_;  // for the trace
  // Declared first of the three: files must go before the signals that would have removed them are let go.
  std::unique_ptr<TemporaryFiles> temporaries_;
  std::vector<OutputFile> files_;
  std::unique_ptr<TextFile> trace_file_;
  AlignedBuffer q_, k_, v_, out_, lse_;
  TensorView q_view_, k_view_, v_view_, out_view_;
  LseView lse_view_;
  double wall_s_ = 0;
  std::mutex record_mutex_;  // guards the pointer below against write_record()
  bool recorded_ = false;
  std::unique_ptr<Ring> ring_;  // last: it goes before the buffers it reads
};

// The ranks of this process, by rank; each is used by the thread of its own, but for failed().
class RankWorks {
 public:
  // record: the folder for the records of ranks that fail; created. Throws InputFile when that cannot be.
  RankWorks(int ranks, std::optional<std::string> record);

  RankWork& add(const Job& job, Transport& transport);
  // For TeamWork.
  void failed(Transport& transport, const std::string& reason);
  void release(Transport& transport);

 private:
  std::mutex mutex_;  // guards the pointers
  std::vector<std::unique_ptr<RankWork>> works_;
  std::optional<std::string> record_;
};

}  // namespace kvring::cli
