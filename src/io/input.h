// Tensors in .npy and .safetensors files, read on demand: only the rows asked for, with pread, never mapped,
// so that a rank's memory holds its shard and nothing else of the file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/tensor_info.h"
#include "kvring/layout.h"
#include "kvring/tensor.h"

namespace kvring {

class InputTensor;

// An open file whose header has been checked. Copies share the descriptor; safe to use from several threads.
class TensorFile {
 public:
  // Throws InvalidArgument for a suffix other than .npy and .safetensors, and InputFile for a file that
  // cannot be opened or is not what its suffix says; the message names file, tensor, found and expected.
  explicit TensorFile(const std::string& path);

  const std::string& path() const noexcept;

  // A tensor of shape (batch, seqlen, heads, dim), or (seqlen, heads, dim) which is batch 1. A .npy file
  // holds one tensor, whatever its name: there `name` only serves messages. Throws InputFile when the
  // tensor is missing (naming those present), is not f32, bf16 or f16, or has another number of dimensions.
  InputTensor tensor(const std::string& name) const;

  // A small f32 tensor at once: sinks (heads), LSE (batch, heads, seqlen). In the file a leading dimension
  // of 1 may be absent. Throws InputFile when dtype or shape is not as expected.
  std::vector<float> read_f32(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  friend class InputTensor;
  struct State;
  const TensorInfo& find(const std::string& name) const;
  std::shared_ptr<const State> state_;
};

// One (batch, seqlen, heads, dim) tensor of an open file.
class InputTensor {
 public:
  const std::array<std::int64_t, 4>& shape() const noexcept { return shape_; }
  DType dtype() const noexcept { return dtype_; }
  // Whether the file has the batch dimension; output may want to look like input.
  bool has_batch() const noexcept { return has_batch_; }

  const std::string& path() const noexcept;

  // Tells tensors of one dtype and shape apart at little cost: XXH3 of all bytes of a short one, and of a
  // long one of 66 samples of 4 KiB spread evenly from its first byte to its last. Two that differ only
  // between the samples look alike. Throws InputFile when the file cannot be read.
  std::uint64_t fingerprint() const;

  // Copies positions [positions.begin, positions.end) of one batch entry to dst, dense: (positions, heads,
  // dim). Throws InvalidArgument outside the tensor, InputFile when the file cannot be read or has shrunk.
  void read_rows(std::int64_t batch, Range positions, void* dst) const;

  // Copies all positions of a shard, of all batch entries, to a dense local tensor of this dtype and shape
  // (batch, shard.tokens(), heads, dim). Throws InvalidArgument when `local` is not that.
  void read_shard(const Shard& shard, const TensorView& local) const;

 private:
  friend class TensorFile;
  InputTensor(std::shared_ptr<const TensorFile::State> state, const std::string& name,
              const TensorInfo& info);

  std::shared_ptr<const TensorFile::State> state_;
  std::string name_;
  std::array<std::int64_t, 4> shape_{};
  DType dtype_ = DType::kF32;
  bool has_batch_ = true;
  std::int64_t offset_ = 0;       // of the tensor in the file
  std::int64_t token_bytes_ = 0;  // heads * dim elements
};

}  // namespace kvring
