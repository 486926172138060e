#include "io/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "io/npy.h"
#include "io/safetensors.h"
#include "io/temporary.h"
#include "kvring/error.h"

namespace kvring {
namespace {

// Rows are gathered into a buffer of this size before they are written: large enough that a system call
// costs nothing beside the copy, small beside any shard.
constexpr std::int64_t kBufferBytes = std::int64_t{1} << 20;

// Takes disk space now, so that a full disk shows before hours of work. File systems that cannot reserve
// get the size alone and fail at the write. (glibc's posix_fallocate would instead write every block.)
int reserve_space(int fd, std::int64_t bytes) {
  int result = 0;
  do {
    result = ::fallocate(fd, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(fd, bytes);
  return result == 0 ? 0 : errno;
}

// A tensor's shape with a missing leading dimension put back as 1.
template <std::size_t kRank>
std::array<std::int64_t, kRank> with_batch(const std::vector<std::int64_t>& shape) {
  std::array<std::int64_t, kRank> full{};
  full[0] = 1;
  if (shape.size() == kRank || shape.size() == kRank - 1)
    std::copy(shape.rbegin(), shape.rend(), full.rbegin());
  else
    full[0] = -1;  // matches no local shape
  return full;
}

template <std::size_t kRank>
void check_local(const std::string& path, const std::string& tensor, const TensorInfo& info,
                 const Shard& shard, DType dtype, const std::array<std::int64_t, kRank>& shape,
                 std::size_t token_axis) {
  std::array<std::int64_t, kRank> expected = with_batch<kRank>(info.shape);
  const std::int64_t tokens = std::exchange(expected[token_axis], shard.tokens());
  if (dtype != info.dtype || shape != expected)
    throw InvalidArgument(
        fmt::format("{}: tensor {}, {} of shape {}: cannot take {} tokens from {} of shape {}", path,
                    printable(tensor), dtype_name(*info.dtype), shape_text(info.shape), shard.tokens(),
                    dtype_name(dtype), shape_text({shape.begin(), shape.end()})));
  for (const Range& range : shard.ranges()) {
    if (range.begin < 0 || range.end > tokens)
      throw InvalidArgument(fmt::format("{}: tensor {}: positions [{}, {}) are outside its {} tokens", path,
                                        printable(tensor), range.begin, range.end, tokens));
  }
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temp_path_(std::move(other.temp_path_)),
      creator_(std::exchange(other.creator_, false)),
      file_(std::move(other.file_)),
      header_(std::move(other.header_)),
      bytes_(other.bytes_),
      parts_(std::move(other.parts_)) {}

OutputFile::~OutputFile() {
  if (creator_) ::unlink(temp_path_.c_str());
}

// The header, read back by the reader's own parser, is the one source of where each tensor goes.
void OutputFile::lay_out(const std::string& path, const std::vector<TensorSpec>& tensors) {
  path_ = path;
  const FileFormat format = file_format(path);
  if (format == FileFormat::kNpy && tensors.size() != 1)
    throw InvalidArgument(
        fmt::format("{}: .npy holds one tensor, not {}; use .safetensors, or one .npy file per tensor", path,
                    tensors.size()));
  const std::string packed = safetensors_header(tensors);  // refuses sizes past int64, in either format
  header_ = format == FileFormat::kNpy ? npy_header(tensors[0]) : packed;
  bytes_ = static_cast<std::int64_t>(header_.size());
  for (const TensorSpec& t : tensors)
    bytes_ += *checked_bytes(t.shape, static_cast<std::int64_t>(dtype_bytes(t.dtype)));
  if (format == FileFormat::kNpy) {
    parts_.push_back({tensors[0].name, parse_npy(header_, bytes_, path)});
  } else {
    for (auto& [name, info] : parse_safetensors(header_, bytes_, path)) parts_.push_back({name, info});
  }
  // Past this limit the kernel would end the process with a signal.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(bytes_) > limit.rlim_cur)
    throw InputFile(fmt::format("{}: needs {} bytes, the limit on file size (ulimit -f) is {}", path, bytes_,
                                std::uint64_t{limit.rlim_cur}));
}

void OutputFile::reserve() {
  if (const int error = reserve_space(file_.get(), bytes_); error != 0)
    throw InputFile(
        fmt::format("{}: cannot reserve the {} bytes it needs: {}", path_, bytes_, errno_text(error)));
  write_exactly(file_, path_, header_.data(), static_cast<std::int64_t>(header_.size()), 0);
}

OutputFile OutputFile::create(const std::string& path, const std::vector<TensorSpec>& tensors) {
  OutputFile output;
  output.lay_out(path, tensors);
  output.target_ = resolve_target(path);
  output.file_ = create_temporary(path, output.target_, output.temp_path_);
  output.creator_ = true;
  output.reserve();
  return output;
}

OutputFile OutputFile::open_existing(const std::string& path, const std::string& temp_path,
                                     const std::vector<TensorSpec>& tensors) {
  OutputFile output;
  output.lay_out(path, tensors);
  output.temp_path_ = temp_path;
  output.file_ = FileHandle(::open(temp_path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (output.file_.get() < 0 || ::fstat(output.file_.get(), &status) != 0)
    throw InputFile(fmt::format("{}: cannot open {}: {} (do all ranks see the same file system?)", path,
                                temp_path, errno_text(errno)));
  std::string header(output.header_.size(), '\0');
  if (status.st_size == output.bytes_)
    read_exactly(output.file_, temp_path, header.data(), static_cast<std::int64_t>(header.size()), 0);
  if (header != output.header_)
    throw InputFile(fmt::format("{}: {} was created for other tensors: {} bytes, expected {}", path,
                                temp_path, status.st_size, output.bytes_));
  return output;
}

const TensorInfo& OutputFile::find(const std::string& tensor) const {
  for (const Part& part : parts_) {
    if (part.name == tensor) return part.info;
  }
  throw InvalidArgument(fmt::format("{}: has no tensor {}", path_, printable(tensor)));
}

void OutputFile::write_elements(const std::string& tensor, std::int64_t first, std::int64_t count,
                                const void* data) {
  const TensorInfo& info = find(tensor);
  const auto element = static_cast<std::int64_t>(dtype_bytes(*info.dtype));
  const std::int64_t elements = info.bytes / element;
  if (first < 0 || count < 0 || first > elements || count > elements - first)
    throw InvalidArgument(fmt::format("{}: tensor {}: {} elements from {} on are outside its {}", path_,
                                      printable(tensor), count, first, elements));
  write_exactly(file_, path_, data, count * element, info.offset + first * element);
}

void OutputFile::write_shard(const std::string& tensor, const Shard& shard, const ConstTensorView& local) {
  const TensorInfo& info = find(tensor);
  check_local<4>(path_, tensor, info, shard, local.dtype, local.shape, 1);
  const auto [batches, tokens, heads, dim] = with_batch<4>(info.shape);
  const auto element = static_cast<std::int64_t>(dtype_bytes(local.dtype));
  const std::int64_t row_bytes = dim * element;
  const std::int64_t token_bytes = heads * row_bytes;
  if (token_bytes == 0) return;
  const std::int64_t most = std::max<std::int64_t>(1, kBufferBytes / token_bytes);  // tokens per write
  std::vector<char> buffer(static_cast<std::size_t>(std::min(most, shard.tokens()) * token_bytes));
  const char* rows = static_cast<const char*>(local.data);
  for (std::int64_t b = 0; b < batches; ++b) {
    std::int64_t row = 0;
    for (const Range& range : shard.ranges()) {
      for (std::int64_t s = range.begin; s < range.end;) {
        const std::int64_t count = std::min(most, range.end - s);
        char* to = buffer.data();
        for (std::int64_t i = 0; i < count; ++i, ++row) {
          for (std::int64_t h = 0; h < heads; ++h, to += row_bytes)
            std::memcpy(to, rows + local.offset(b, row, h) * element, static_cast<std::size_t>(row_bytes));
        }
        write_elements(tensor, (b * tokens + s) * heads * dim, count * heads * dim, buffer.data());
        s += count;
      }
    }
  }
}

void OutputFile::write_lse_shard(const std::string& tensor, const Shard& shard, const LseView& local) {
  const TensorInfo& info = find(tensor);
  check_local<3>(path_, tensor, info, shard, DType::kF32, local.shape, 2);
  const auto [batches, heads, tokens] = with_batch<3>(info.shape);
  const std::int64_t most = kBufferBytes / static_cast<std::int64_t>(sizeof(float));
  std::vector<float> buffer(static_cast<std::size_t>(std::min(most, shard.tokens())));
  for (std::int64_t line = 0; line < batches * heads; ++line) {
    std::int64_t row = 0;
    for (const Range& range : shard.ranges()) {
      for (std::int64_t s = range.begin; s < range.end;) {
        const std::int64_t count = std::min(most, range.end - s);
        for (std::int64_t i = 0; i < count; ++i, ++row)
          buffer[static_cast<std::size_t>(i)] = local.data[local.offset(line / heads, line % heads, row)];
        write_elements(tensor, line * tokens + s, count, buffer.data());
        s += count;
      }
    }
  }
}

void OutputFile::commit() {
  if (!sync_and_close(file_) || (creator_ && ::rename(temp_path_.c_str(), target_.c_str()) != 0))
    throw InputFile(fmt::format("{}: cannot finish the {} bytes: {}", path_, bytes_, errno_text(errno)));
  creator_ = false;
}

}  // namespace kvring
