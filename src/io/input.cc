#include "io/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "kvring/error.h"

namespace kvring {

struct TensorFile::State {
  std::string path;
  FileFormat format = FileFormat::kNpy;
  FileHandle file;
  std::map<std::string, TensorInfo> tensors;  // .npy: one, under the name ""
};

namespace {

// Opens a regular file; anything else (a directory, a pipe that nobody writes) is refused, not waited for.
FileHandle open_regular(const std::string& path, std::int64_t& bytes) {
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0)
    throw InputFile(fmt::format("{}: cannot open: {}", path, errno_text(errno)));
  if (!S_ISREG(status.st_mode))
    throw InputFile(fmt::format("{}: is {}; expected a regular file", path,
                                S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe"));
  bytes = status.st_size;
  return file;
}

std::string read_text(const FileHandle& file, const std::string& path, std::int64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  read_exactly(file, path, text.data(), bytes, 0);
  return text;
}

std::map<std::string, TensorInfo> read_header(const FileHandle& file, FileFormat format, std::int64_t bytes,
                                              const std::string& path) {
  if (format == FileFormat::kNpy) {
    const std::string prefix = read_text(file, path, std::min(bytes, kNpyPrefixBytes));
    const std::string header = read_text(file, path, npy_header_bytes(prefix, bytes, path));
    return {{"", parse_npy(header, bytes, path)}};
  }
  const std::string prefix = read_text(file, path, std::min(bytes, kSafetensorsPrefixBytes));
  const std::string header = read_text(file, path, safetensors_header_bytes(prefix, bytes, path));
  return parse_safetensors(header, bytes, path);
}

std::string names_in(const std::map<std::string, TensorInfo>& tensors) {
  constexpr int kMost = 8;  // a model's file may hold thousands
  std::string names;
  int listed = 0;
  for (const auto& [name, info] : tensors) {
    if (listed++ == kMost) return names + ", ...";
    names += (names.empty() ? "" : ", ") + printable(name);
  }
  return names.empty() ? "no tensor" : names;
}

}  // namespace

TensorFile::TensorFile(const std::string& path) {
  auto state = std::make_shared<State>();
  state->path = path;
  state->format = file_format(path);
  std::int64_t bytes = 0;
  state->file = open_regular(path, bytes);
  state->tensors = read_header(state->file, state->format, bytes, path);
  state_ = std::move(state);
}

const std::string& TensorFile::path() const noexcept { return state_->path; }

const TensorInfo& TensorFile::find(const std::string& name) const {
  const auto it = state_->tensors.find(state_->format == FileFormat::kNpy ? "" : name);
  if (it == state_->tensors.end())
    throw InputFile(
        fmt::format("{}: has no tensor {}; it holds {}", path(), printable(name), names_in(state_->tensors)));
  if (!it->second.dtype)
    throw InputFile(fmt::format("{}: tensor {}: dtype {}; expected F32, BF16 or F16", path(), printable(name),
                                printable(it->second.dtype_text)));
  return it->second;
}

InputTensor TensorFile::tensor(const std::string& name) const {
  const TensorInfo& info = find(name);
  if (info.shape.size() != 3 && info.shape.size() != 4)
    throw InputFile(
        fmt::format("{}: tensor {}: shape {}; expected (batch, seqlen, heads, dim) or (seqlen, heads, dim)",
                    path(), printable(name), shape_text(info.shape)));
  return InputTensor(state_, name, info);
}

std::vector<float> TensorFile::read_f32(const std::string& name,
                                        const std::vector<std::int64_t>& shape) const {
  const TensorInfo& info = find(name);
  const bool same = info.shape == shape;
  const bool same_without_batch =
      !shape.empty() && shape[0] == 1 &&
      std::equal(info.shape.begin(), info.shape.end(), shape.begin() + 1, shape.end());
  if (info.dtype != DType::kF32 || !(same || same_without_batch))
    throw InputFile(fmt::format("{}: tensor {}: {} of shape {}; expected f32 of shape {}", path(),
                                printable(name), dtype_name(*info.dtype), shape_text(info.shape),
                                shape_text(shape)));
  std::vector<float> values(static_cast<std::size_t>(info.bytes) / sizeof(float));
  read_exactly(state_->file, path(), values.data(), info.bytes, info.offset);
  return values;
}

InputTensor::InputTensor(std::shared_ptr<const TensorFile::State> state, const std::string& name,
                         const TensorInfo& info)
    : state_(std::move(state)),
      name_(name),
      dtype_(*info.dtype),
      has_batch_(info.shape.size() == 4),
      offset_(info.offset) {
  shape_[0] = 1;
  std::copy(info.shape.begin(), info.shape.end(), shape_.begin() + (has_batch_ ? 0 : 1));
  token_bytes_ = shape_[2] * shape_[3] * static_cast<std::int64_t>(dtype_bytes(dtype_));
}

const std::string& InputTensor::path() const noexcept { return state_->path; }

std::uint64_t InputTensor::fingerprint() const {
  constexpr std::int64_t kSampleBytes = 4096, kSamples = 66;
  const std::int64_t bytes = shape_[0] * shape_[1] * token_bytes_;
  const bool whole = bytes <= kSamples * kSampleBytes;
  std::vector<char> sample(static_cast<std::size_t>(whole ? bytes : kSampleBytes));
  const std::int64_t last = bytes - std::ssize(sample);  // where the last sample begins
  std::uint64_t digest = 0;
  for (std::int64_t i = 0; i < (whole ? 1 : kSamples); ++i) {
    // Two factors, so that no product outgrows 64 bits.
    const std::int64_t at = last / (kSamples - 1) * i + last % (kSamples - 1) * i / (kSamples - 1);
    read_exactly(state_->file, state_->path, sample.data(), std::ssize(sample), offset_ + at);
    digest = XXH3_64bits_withSeed(sample.data(), sample.size(), digest);
  }
  return digest;
}

void InputTensor::read_rows(std::int64_t batch, Range positions, void* dst) const {
  if (batch < 0 || batch >= shape_[0] || positions.begin < 0 || positions.end > shape_[1] ||
      positions.begin > positions.end)
    throw InvalidArgument(fmt::format(
        "{}: tensor {}: positions [{}, {}) of batch entry {} are outside its shape {}", state_->path,
        printable(name_), positions.begin, positions.end, batch, shape_text({shape_.begin(), shape_.end()})));
  read_exactly(state_->file, state_->path, dst, positions.size() * token_bytes_,
               offset_ + (batch * shape_[1] + positions.begin) * token_bytes_);
}

void InputTensor::read_shard(const Shard& shard, const TensorView& local) const {
  const std::array<std::int64_t, 4> expected = {shape_[0], shard.tokens(), shape_[2], shape_[3]};
  if (local.dtype != dtype_ || local.shape != expected ||
      local.stride != dense_view(local.data, dtype_, expected).stride)
    throw InvalidArgument(
        fmt::format("{}: tensor {}: the buffer for a shard is {} of shape {}; expected dense {} of "
                    "shape {}",
                    state_->path, printable(name_), dtype_name(local.dtype),
                    shape_text({local.shape.begin(), local.shape.end()}), dtype_name(dtype_),
                    shape_text({expected.begin(), expected.end()})));
  auto* dst = static_cast<char*>(local.data);
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (const Range& range : shard.ranges()) {
      read_rows(b, range, dst);
      dst += range.size() * token_bytes_;
    }
  }
}

}  // namespace kvring
