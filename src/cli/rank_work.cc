#include "cli/rank_work.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/digest.h"
#include "cli/keep_alive.h"
#include "cli/message.h"
#include "cli/report.h"
#include "trace/gather.h"
#include "trace/write.h"

namespace kvring::cli {
namespace {

TensorView allocate(AlignedBuffer& buffer, DType dtype, const std::array<std::int64_t, 4>& shape) {
  const TensorView shaped = dense_view<void>(nullptr, dtype, shape);
  buffer = AlignedBuffer(shaped.elements() * static_cast<std::int64_t>(dtype_bytes(dtype)));
  return dense_view<void>(buffer.data(), dtype, shape);
}

}  // namespace

RankWork::RankWork(const Job& job, Transport& transport) : job_(job), transport_(transport) {}

void RankWork::open_outputs() {
  if (job_.outputs.empty() && !job_.trace) return;
  // Any process may be the last that still can remove them; ranks that share one leave it to rank 0.
  const bool removes = rank() == 0 || !transport_.passes_pointers();
  std::optional<InterruptFlag> until_listed;  // a signal now would find the files, and not their names
  if (removes) until_listed.emplace();
  Json names = Json::array();
  if (rank() == 0) {
    for (const OutputPlan& plan : job_.outputs) {
      files_.push_back(OutputFile::create(plan.path, plan.tensors));
      names.push_back(files_.back().temp_path());
    }
    if (job_.trace) {
      trace_file_ = std::make_unique<TextFile>(*job_.trace);
      names.push_back(trace_file_->temp_path());
    }
  }
  const std::vector<std::string> all = transport_.allgather(names.dump(), "the names of the output files");
  const Json created = Json::parse(all[0]);
  if (removes) {
    temporaries_ = std::make_unique<TemporaryFiles>(created.get<std::vector<std::string>>());
    if (until_listed->signal() != 0) std::raise(until_listed->signal());
  }
  if (rank() == 0) return;
  for (std::size_t i = 0; i < job_.outputs.size(); ++i) {
    const OutputPlan& plan = job_.outputs[i];
    files_.push_back(OutputFile::open_existing(plan.path, created[i].get<std::string>(), plan.tensors));
  }
}

void RankWork::load() {
  auto ring = std::make_unique<Ring>(job_.problem, job_.layouts, job_.ring, transport_);
  {
    const std::lock_guard lock(record_mutex_);
    ring_ = std::move(ring);
  }
  if (job_.trace) ring_->keep_all_operations();
  const Problem& p = job_.problem;
  const std::int64_t q_tokens = q_shard().tokens();
  const std::int64_t kv_tokens = job_.layouts.kv.shards[rank()].tokens();
  q_view_ = allocate(q_, p.q_dtype, {p.batch, q_tokens, p.q_heads, p.head_dim});
  k_view_ = allocate(k_, p.kv_dtype, {p.batch, kv_tokens, p.kv_heads, p.head_dim});
  v_view_ = allocate(v_, p.kv_dtype, {p.batch, kv_tokens, p.kv_heads, p.value_dim});
  out_view_ = allocate(out_, p.out_dtype, {p.batch, q_tokens, p.q_heads, p.value_dim});
  lse_ = AlignedBuffer(p.batch * p.q_heads * q_tokens * static_cast<std::int64_t>(sizeof(float)));
  lse_view_ = dense_lse_view(reinterpret_cast<float*>(lse_.data()), {p.batch, p.q_heads, q_tokens});
  keep_alive(transport_, [this] { read_shards(); });
}

void RankWork::read_shards() {
  job_.q.read_shard(q_shard(), q_view_);
  job_.k.read_shard(job_.layouts.kv.shards[rank()], k_view_);
  job_.v.read_shard(job_.layouts.kv.shards[rank()], v_view_);
}

void RankWork::attend(const std::function<void(double)>& progress) {
  if (progress) ring_->set_progress(progress);
  if (job_.trace) barriers_ = time_barriers(transport_);
  const auto began = std::chrono::steady_clock::now();
  ring_->attend(as_const(q_view_), as_const(k_view_), as_const(v_view_), out_view_, lse_view_,
                job_.sinks_or_null());
  wall_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void RankWork::write_record(const std::string& folder, const std::string& reason) noexcept {
  const std::lock_guard lock(record_mutex_);
  if (!ring_ || std::exchange(recorded_, true)) return;
  const std::string path = fmt::format("{}/rank-{}.json", folder, rank());
  try {
    const std::string text = ring_->record(reason);
    std::ofstream file(path);
    file << text << std::flush;
    if (file) return;
  } catch (const std::exception&) {
  }
  message("kvring: {} could not be written\n", path);
}

void RankWork::write_outputs() {
  if (files_.empty()) return;
  keep_alive(transport_, [&] {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      for (const TensorSpec& tensor : job_.outputs[i].tensors) {
        if (tensor.name == "out")
          files_[i].write_shard(tensor.name, q_shard(), out());
        else
          files_[i].write_lse_shard(tensor.name, q_shard(), lse_view_);
      }
    }
    if (rank() != 0) commit_files();
  });
  transport_.barrier("all parts of the output");
}

void RankWork::commit_files() {
  for (OutputFile& file : files_) file.commit();
}

void RankWork::commit_outputs() {
  if (files_.empty()) return;
  if (rank() == 0) keep_alive(transport_, [this] { commit_files(); });
  transport_.barrier("the finished output");
}

void RankWork::write_trace(const TraceInfo& info) {
  const RankReport& report = ring_->report();
  const Operation::Tiles tiles{report.tiles_full, report.tiles_partial, report.tiles_skipped};
  Trace trace{info, gather_traces(transport_, {barriers_, tiles, ring_->operations()})};
  if (rank() == 0) {
    keep_alive(transport_, [&] {
      kvring::write_trace(trace, [&](std::string_view text) { trace_file_->write(text); });
      trace_file_->commit();
    });
  }
  transport_.barrier("the finished trace");
}

Json RankWork::report() const {
  const Problem& p = job_.problem;
  return {{"report", rank_json(ring_->report())},
          {"wall_s", wall_s_},
          {"bits_invariant", ring_->bits_invariant()},
          {"out_digest", digest_part(out(), q_shard(), p.q_len)},
          {"lse_digest", digest_part(lse_view_, q_shard(), p.q_len)}};
}

std::vector<Json> RankWork::gather_reports() {
  const std::string mine = keep_alive(transport_, [this] { return report().dump(); });
  const std::vector<std::string> all = transport_.allgather(mine, "the reports");
  std::vector<Json> reports;
  if (rank() != 0) return reports;  // a thousand ranks reading a thousand reports each would take a while
  for (const std::string& text : all) reports.push_back(Json::parse(text));
  return reports;
}

RankWorks::RankWorks(int ranks, std::optional<std::string> record)
    : works_(static_cast<std::size_t>(ranks)), record_(std::move(record)) {
  if (!record_) return;
  std::error_code error;
  std::filesystem::create_directories(*record_, error);
  if (error)
    throw InputFile(
        fmt::format("--record is {}: {}; give a folder that can be written to", *record_, error.message()));
}

RankWork& RankWorks::add(const Job& job, Transport& transport) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<RankWork>& work = works_[static_cast<std::size_t>(transport.rank())];
  work = std::make_unique<RankWork>(job, transport);
  return *work;
}

void RankWorks::failed(Transport& transport, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const std::unique_ptr<RankWork>& work = works_[static_cast<std::size_t>(transport.rank())];
  if (work && record_) work->write_record(*record_, reason);
}

// It may wait for other ranks, which may want the lock.
void RankWorks::release(Transport& transport) {
  std::unique_ptr<RankWork> work;
  const std::lock_guard lock(mutex_);
  work = std::move(works_[static_cast<std::size_t>(transport.rank())]);
}

}  // namespace kvring::cli
